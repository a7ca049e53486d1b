// SPDX-License-Identifier: Apache-2.0
// Which elements along an axis of an image make one of the resized image, and how much of each.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ops/compute.h"

namespace relaxvm::ops {

// The attributes of image.resize2d and image.resize3d.
struct Resize {
  std::vector<double> roi;
  std::string layout;
  std::string method = "linear";
  std::string coordinate_transformation_mode = "half_pixel";
  std::string rounding_method = "round";
  double cubic_alpha = -0.75;
  int64_t cubic_exclude = 0;
  double extrapolation_value = 0.0;
  std::optional<DLDataType> out_dtype;
  bool antialias = false;
  std::vector<double> scales;
};

// One spatial axis of a resize.
struct ResizedAxis {
  Expr have, want;    // extents
  double begin, end;  // region of interest, for tf_crop_and_resize
  DLDataType real;    // of positions and weights: float64 for data of float64, else float32
  double scale = 0;   // what `want` is to `have`; 0: their ratio

  Expr Real(double value) const { return ir::ConstFloat(real, value); }
  Expr Real(const Expr& e) const { return ir::Cast(real, e); }
};

// Where element `i` of the result lies in data.
Expr PositionOf(const std::string& mode, const ResizedAxis& axis, const Expr& i);

// `want` divided by `have`; 0: that is not known.
double ScaleOf(const ResizedAxis& axis);

// Does the axis become shorter, so that each result takes in all elements that it stands for?
bool IsAntialiased(const Resize& a, const ResizedAxis& axis);

// What one axis contributes: elements of data and their weights.
struct Tap {
  Expr index, weight;  // weight null: 1
};

// Of an axis that is not antialiased.
std::vector<Tap> TapsOf(const Resize& a, const ResizedAxis& axis, const Expr& i);

// Is it one element, without a weight?
bool IsPicked(const Resize& a, const ResizedAxis& axis);

// What is read along one axis of the result, in memory: positions cost more than all the rest.
class TapTables {
 public:
  // Of elements of rows, where pixels have several each.
  TapTables(const Resize& a, const ResizedAxis& axis, int64_t per_pixel = 1);
  std::vector<Tap> At(const Expr& place) const;

 private:
  using AtPlace = std::function<Expr(const Expr&)>;
  void AddAntialiased(const Resize& a, const ResizedAxis& axis);
  void Add(const ResizedAxis& axis, const AtPlace& index, const AtPlace& weight);

  int64_t per_pixel_;
  std::vector<tir::Tensor> index_, weight_;
};

// Is it better to have in memory what is read along the axis?  `along_vectors`: it is the one that
// lies in memory element by element; `shared`: several elements lie at each of its places.
bool WantsTables(const Resize& a, const ResizedAxis& axis, bool along_vectors, bool shared);

}  // namespace relaxvm::ops
