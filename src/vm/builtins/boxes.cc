// SPDX-License-Identifier: Apache-2.0
// Boxes chosen by score: how many are left depends on the data.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "support/dtype.h"
#include "vm/builtins/builtins.h"

namespace relaxvm::vm::builtins {
namespace ffi = tvm::ffi;
namespace {

struct Box {
  float top, left, bottom, right;
  float Area() const { return (bottom - top) * (right - left); }
};

// Corners in any order, or centre and size.
Box BoxOf(const float* p, bool centre) {
  if (centre) {
    return {p[1] - p[3] / 2, p[0] - p[2] / 2, p[1] + p[3] / 2, p[0] + p[2] / 2};
  }
  return {std::min(p[0], p[2]), std::min(p[1], p[3]), std::max(p[0], p[2]), std::max(p[1], p[3])};
}

// Chosen boxes, corner by corner, so that vectors ask many of them at once.
class Kept {
 public:
  void Add(const Box& box) {
    top_.push_back(box.top);
    left_.push_back(box.left);
    bottom_.push_back(box.bottom);
    right_.push_back(box.right);
    area_.push_back(box.Area());
  }

  bool Overlap(const Box& box, double threshold) const {
    const float area = box.Area();
    size_t i = 0;
    for (; i + kBlock <= area_.size(); i += kBlock) {
      if (!AnyTouches(box, i)) continue;
      for (size_t k = i; k < i + kBlock; ++k) {
        if (Overlaps(box, area, k, threshold)) return true;
      }
    }
    for (; i < area_.size(); ++i) {
      if (Overlaps(box, area, i, threshold)) return true;
    }
    return false;
  }

 private:
  static constexpr size_t kBlock = 16;

  bool AnyTouches(const Box& box, size_t from) const {
    const float *top = &top_[from], *left = &left_[from], *bottom = &bottom_[from],
                *right = &right_[from];
    int any = 0;
    for (size_t k = 0; k < kBlock; ++k) {
      any |= static_cast<int>(top[k] < box.bottom) & static_cast<int>(box.top < bottom[k]) &
             static_cast<int>(left[k] < box.right) & static_cast<int>(box.left < right[k]);
    }
    return any != 0;
  }

  bool Overlaps(const Box& a, float area, size_t k, double threshold) const {
    const float height = std::min(a.bottom, bottom_[k]) - std::max(a.top, top_[k]);
    const float width = std::min(a.right, right_[k]) - std::max(a.left, left_[k]);
    if (height <= 0 || width <= 0) return false;
    const float shared = height * width, all = area + area_[k] - shared;
    return all > 0 && static_cast<double>(shared / all) > threshold;
  }

  std::vector<float> top_, left_, bottom_, right_, area_;
};

// Chosen boxes on shelves, by where they begin along one axis.  A shelf is at least as wide as any
// box, so what overlaps one stands on its shelf or on a neighbouring one: detectors that take all
// classes at once put those far apart.
class Shelves {
 public:
  explicit Shelves(const std::vector<Box>& boxes) {
    const Span rows = SpanOf(boxes, &Box::top, &Box::bottom);
    const Span columns = SpanOf(boxes, &Box::left, &Box::right);
    begin_ = rows.Count() >= columns.Count() ? &Box::top : &Box::left;
    const Span& span = rows.Count() >= columns.Count() ? rows : columns;
    const double most = static_cast<double>(boxes.size() / kBoxesPerShelf);
    const auto count = static_cast<int64_t>(std::max(1.0, std::min(span.Count(), most)));
    least_ = span.least;
    per_unit_ = count > 1 ? static_cast<double>(count) / (span.most - span.least) : 0;
    shelves_.resize(static_cast<size_t>(count));
  }

  int64_t size() const { return size_; }

  void Add(const Box& box) {
    shelves_[ShelfOf(box)].Add(box);
    ++size_;
  }

  bool Overlap(const Box& box, double threshold) const {
    const size_t own = ShelfOf(box), end = std::min(own + 2, shelves_.size());
    for (size_t i = own > 0 ? own - 1 : 0; i < end; ++i) {
      if (shelves_[i].Overlap(box, threshold)) return true;
    }
    return false;
  }

 private:
  static constexpr size_t kBoxesPerShelf = 16;
  static constexpr double kMargin = 1.001;  // for rounding

  // Where boxes begin along an axis, and the longest of them.
  struct Span {
    double least = 0, most = 0, longest = 0;
    // Shelves that are as wide as the longest box; 0 where a box has no finite place.
    double Count() const {
      const double count = std::floor((most - least) / (longest * kMargin));
      return std::isfinite(count) ? count : 0;
    }
  };
  static Span SpanOf(const std::vector<Box>& boxes, float Box::* begin, float Box::* end) {
    Span span;
    if (!boxes.empty()) span.least = span.most = boxes[0].*begin;
    for (const Box& box : boxes) {
      const double from = box.*begin, to = box.*end;
      if (!std::isfinite(from) || !std::isfinite(to)) return {};
      span.least = std::min(span.least, from);
      span.most = std::max(span.most, from);
      span.longest = std::max(span.longest, to - from);
    }
    return span;
  }

  size_t ShelfOf(const Box& box) const {
    if (shelves_.size() == 1) return 0;
    const double at = (static_cast<double>(box.*begin_) - least_) * per_unit_;
    return std::min(static_cast<size_t>(at), shelves_.size() - 1);
  }

  float Box::* begin_ = nullptr;
  double least_ = 0, per_unit_ = 0;
  int64_t size_ = 0;
  std::vector<Kept> shelves_;
};

// The boxes that have a score and may be chosen, best first; of equal ones the first.
std::vector<int64_t> OrderOf(const float* score, int64_t count, std::optional<double> least) {
  struct Scored {
    float score;
    int64_t box;
  };
  std::vector<Scored> scored;
  for (int64_t n = 0; n < count; ++n) {
    const bool wanted = !least.has_value() || static_cast<double>(score[n]) > *least;
    if (wanted && score[n] == score[n]) scored.push_back({score[n], n});  // never NaN
  }
  std::sort(scored.begin(), scored.end(), [](const Scored& a, const Scored& b) {
    return a.score > b.score || (a.score == b.score && a.box < b.box);
  });
  std::vector<int64_t> order;
  order.reserve(scored.size());
  for (const Scored& s : scored) order.push_back(s.box);
  return order;
}

const float* Floats(const Args& args, int32_t i, int ndim) {
  const DLTensor& t = args.TensorView(i);
  if (t.dtype != Float(32) || t.ndim != ndim || !runtime::IsHost(t.device) ||
      !ffi::IsContiguous(t)) {
    args.WrongType(i, "a contiguous float32 tensor with 3 dimensions on the CPU");
  }
  return reinterpret_cast<const float*>(runtime::DataOf(t));
}

// A number, or a tensor with one.
double NumberOf(const Args& args, int32_t i) {
  if (args[i].type_index == kTVMFFIInt) return static_cast<double>(args[i].v_int64);
  if (args[i].type_index == kTVMFFIFloat) return args[i].v_float64;
  const DLTensor& t = args.TensorView(i);
  const bool one = std::all_of(t.shape, t.shape + t.ndim, [](int64_t d) { return d == 1; });
  const void* data = runtime::DataOf(t);
  if (one && runtime::IsHost(t.device)) {
    if (t.dtype == Int(64)) return static_cast<double>(*static_cast<const int64_t*>(data));
    if (t.dtype == Int(32)) return *static_cast<const int32_t*>(data);
    if (t.dtype == Float(32)) return *static_cast<const float*>(data);
  }
  args.WrongType(i, "a number, or a tensor with one on the CPU");
}

}  // namespace

// (boxes [batch, n, 4], scores [batch, classes, n], max_per_class, iou_threshold, centre,
// score_threshold?) -> int64[count, 3]: batch, class, box
void NonMaxSuppression(Args args, ffi::Any* result) {
  const float* boxes = Floats(args, 0, 3);
  const float* scores = Floats(args, 1, 3);
  const DLTensor &shape = args.TensorView(0), &score_shape = args.TensorView(1);
  const int64_t batch = shape.shape[0], num_boxes = shape.shape[1], classes = score_shape.shape[1];
  if (shape.shape[2] != 4 || score_shape.shape[0] != batch || score_shape.shape[2] != num_boxes) {
    Fail(ErrorKind::kValueError,
         "non_max_suppression: boxes must be [batch, n, 4] and scores [batch, classes, n]");
  }
  // All of them is often the largest integer, which no double is.
  const auto limit = static_cast<int64_t>(
      std::min(static_cast<double>(num_boxes), std::max(0.0, NumberOf(args, 2))));
  const double threshold = NumberOf(args, 3);
  const bool centre = args.Int(4) != 0;
  const auto least = args.size > 5 ? std::optional<double>(NumberOf(args, 5)) : std::nullopt;
  std::vector<int64_t> chosen;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t c = 0; c < classes; ++c) {
      const float* score = scores + (b * classes + c) * num_boxes;
      const std::vector<int64_t> order = OrderOf(score, num_boxes, least);
      std::vector<Box> candidates;
      candidates.reserve(order.size());
      for (int64_t n : order) candidates.push_back(BoxOf(boxes + (b * num_boxes + n) * 4, centre));
      Shelves kept(candidates);
      for (size_t i = 0; i < order.size() && kept.size() < limit; ++i) {
        if (kept.Overlap(candidates[i], threshold)) continue;
        kept.Add(candidates[i]);
        chosen.insert(chosen.end(), {b, c, order[i]});
      }
    }
  }
  ffi::Tensor out = runtime::EmptyHostTensor({static_cast<int64_t>(chosen.size()) / 3, 3}, Int(64));
  std::copy(chosen.begin(), chosen.end(), static_cast<int64_t*>(out.data_ptr()));
  *result = std::move(out);
}

}  // namespace relaxvm::vm::builtins
