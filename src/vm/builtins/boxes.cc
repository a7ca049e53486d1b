// SPDX-License-Identifier: Apache-2.0
// Boxes chosen by score: how many are left depends on the data.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "support/dtype.h"
#include "vm/builtins/builtins.h"
#include "vm/builtins/sort_by_key.h"

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

// Chosen boxes, corner by corner, so that vectors ask many of them at once: blocks of them, the
// last one filled up with boxes that touch none.
class Kept {
 public:
  void Add(const Box& box) {
    if (size_ == area_.size()) {
      const float inf = std::numeric_limits<float>::infinity();
      for (std::vector<float>* begin : {&top_, &left_}) begin->resize(size_ + kBlock, inf);
      for (std::vector<float>* end : {&bottom_, &right_}) end->resize(size_ + kBlock, -inf);
      area_.resize(size_ + kBlock);
    }
    top_[size_] = box.top;
    left_[size_] = box.left;
    bottom_[size_] = box.bottom;
    right_[size_] = box.right;
    area_[size_] = box.Area();
    ++size_;
  }

  // Does `box` share more than `threshold` of the joint area with one?
  bool Overlap(const Box& box, float threshold) const {
    const float area = box.Area();
    for (size_t i = 0; i < size_; i += kBlock) {
      if (AnyTouches(box, i) && AnyOverlaps(box, area, i, threshold)) return true;
    }
    return false;
  }

 private:
  static constexpr size_t kBlock = 16;

  // Blocks are asked without a branch, so that vectors compute the answers.
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

  bool AnyOverlaps(const Box& box, float area, size_t from, float threshold) const {
    const float *top = &top_[from], *left = &left_[from], *bottom = &bottom_[from],
                *right = &right_[from], *areas = &area_[from];
    int any = 0;
    for (size_t k = 0; k < kBlock; ++k) {
      any |= Overlaps(box, area, {top[k], left[k], bottom[k], right[k]}, areas[k], threshold);
    }
    return any != 0;
  }

  // A NaN is no overlap.
  static int Overlaps(const Box& a, float area, const Box& b, float b_area, float threshold) {
    const float height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
    const float width = std::min(a.right, b.right) - std::max(a.left, b.left);
    const float shared = height * width, all = area + b_area - shared;
    return static_cast<int>(height > 0) & static_cast<int>(width > 0) & static_cast<int>(all > 0) &
           static_cast<int>(shared / all > threshold);
  }

  size_t size_ = 0;
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

  bool Overlap(const Box& box, float threshold) const {
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

// A number that falls as the score rises; both zeros have one.
uint64_t FallingKey(float score) {
  const auto bits = std::bit_cast<uint32_t>(score + 0.0f);
  const uint32_t sign = uint32_t{1} << 31;
  return (bits & sign) != 0 ? bits : ~(bits | sign);
}

// Which scores a box may be chosen with.
struct Wanted {
  bool any;
  float above;  // else

  bool operator()(float score) const {
    return static_cast<bool>(static_cast<int>(score == score) &  // never NaN
                             (static_cast<int>(any) | static_cast<int>(score > above)));
  }
};

// Orders the boxes of a class by score, one class after the other.
class Orders {
 public:
  Orders(int64_t count, const Wanted& wanted)
      : wanted_(wanted), room_(static_cast<size_t>(count)) {}

  // The boxes that may be chosen, best first; of equal ones the first.
  std::vector<Keyed> Of(const float* score) {
    size_t size = 0;
    for (size_t begin = 0; begin < room_.size(); begin += kBlock) {
      const size_t end = std::min(begin + kBlock, room_.size());
      if (!AnyWanted(score, begin, end)) continue;
      for (size_t n = begin; n < end; ++n) {  // what is not taken is overwritten
        room_[size] = {FallingKey(score[n]), static_cast<int64_t>(n)};
        size += static_cast<size_t>(wanted_(score[n]));
      }
    }
    std::vector<Keyed> order(room_.begin(), room_.begin() + static_cast<std::ptrdiff_t>(size));
    SortByKey(&order);
    return order;
  }

 private:
  static constexpr size_t kBlock = 32;

  bool AnyWanted(const float* score, size_t begin, size_t end) const {
    if (end - begin < kBlock) return true;
    int any = 0;
    for (size_t k = 0; k < kBlock; ++k) any |= static_cast<int>(wanted_(score[begin + k]));
    return any != 0;
  }

  Wanted wanted_;
  std::vector<Keyed> room_;
};

// The greatest float that is no greater: other floats compare with it as they do with `t`.
float RoundedDown(double t) {
  const auto rounded = static_cast<float>(t);
  if (static_cast<double>(rounded) <= t || t != t) return rounded;
  return std::nextafter(rounded, -std::numeric_limits<float>::infinity());
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
  const float threshold = RoundedDown(NumberOf(args, 3));
  const bool centre = args.Int(4) != 0;
  const bool any = args.size <= 5;
  const Wanted wanted{any, any ? 0.0f : RoundedDown(NumberOf(args, 5))};
  Orders orders(num_boxes, wanted);
  std::vector<int64_t> chosen;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t c = 0; c < classes; ++c) {
      const float* score = scores + (b * classes + c) * num_boxes;
      const std::vector<Keyed> order = orders.Of(score);
      std::vector<Box> candidates;
      candidates.reserve(order.size());
      for (const Keyed& k : order) {
        candidates.push_back(BoxOf(boxes + (b * num_boxes + k.index) * 4, centre));
      }
      Shelves kept(candidates);
      for (size_t i = 0; i < order.size() && kept.size() < limit; ++i) {
        if (kept.Overlap(candidates[i], threshold)) continue;
        kept.Add(candidates[i]);
        chosen.insert(chosen.end(), {b, c, order[i].index});
      }
    }
  }
  ffi::Tensor out = runtime::EmptyHostTensor({static_cast<int64_t>(chosen.size()) / 3, 3}, Int(64));
  std::copy(chosen.begin(), chosen.end(), static_cast<int64_t*>(out.data_ptr()));
  *result = std::move(out);
}

}  // namespace relaxvm::vm::builtins
