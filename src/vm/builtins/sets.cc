// SPDX-License-Identifier: Apache-2.0
// Results whose size depends on the data: nonzero and unique.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "support/dtype.h"
#include "vm/builtins/builtins.h"
#include "vm/builtins/sort_by_key.h"
#include "vm/virtual_machine.h"

namespace relaxvm::vm::builtins {
namespace ffi = tvm::ffi;
namespace {

// A dense tensor of elements of 1, 2, 4 or 8 bytes, in the host's memory: that of a device is
// copied.
struct Elements {
  ffi::Tensor copy{ffi::UnsafeInit{}};        // null when the tensor is the host's
  DLDevice device;                            // where results go
  std::shared_ptr<runtime::MemoryPool> pool;  // there; null on the host
  const char* data;
  DLDataType dtype;
  size_t width;  // bytes of an element
  std::vector<int64_t> shape;
  int64_t count;

  uint64_t Bits(int64_t i) const {
    uint64_t bits = 0;
    std::memcpy(&bits, data + static_cast<size_t>(i) * width, width);
    return bits;
  }
};

Elements HostElements(const Args& args, int32_t i) {
  const DLTensor& t = args.TensorView(i);
  Elements result;
  result.device = t.device;
  size_t bits = t.dtype.bits;
  bool plain = t.dtype.lanes == 1 && (bits == 8 || bits == 16 || bits == 32 || bits == 64);
  plain = plain && !(IsFloat(t.dtype) && bits == 8);
  if (!plain || !ffi::IsContiguous(t)) {
    Fail(ErrorKind::kTypeError, "argument ", i, " must be a contiguous tensor of numbers, it is ",
         DescribeValue(args[i]));
  }
  result.shape.assign(t.shape, t.shape + t.ndim);
  result.count =
      std::accumulate(result.shape.begin(), result.shape.end(), int64_t{1}, std::multiplies<>());
  result.data = runtime::DataOf(t);
  result.dtype = t.dtype;
  result.width = bits / 8;
  if (!runtime::IsHost(t.device)) {
    VirtualMachine* vm = args.context->vm;
    result.pool = vm != nullptr ? vm->PoolOf(t.device) : nullptr;
    if (result.pool == nullptr)
      result.pool = runtime::MemoryPool::Create(t.device, runtime::AllocatorKind::kNaive);
    result.copy = runtime::EmptyHostTensor({t.shape, static_cast<size_t>(t.ndim)}, t.dtype);
    runtime::CopyTensor(t, runtime::Raw(result.copy));
    result.data = runtime::DataOf(runtime::Raw(result.copy));
  }
  return result;
}

// What was computed from `x`, on its device.
ffi::Tensor Beside(const Elements& x, ffi::Tensor host) {
  if (x.pool == nullptr) return host;
  ffi::Tensor there = runtime::EmptyTensor(x.pool, host.shape(), host.dtype());
  runtime::CopyTensor(runtime::Raw(host), runtime::Raw(there));
  return there;
}

// Where bits of `mask` are set.  Counted first: nothing grows, and no branch waits for an element.
template <typename Word>
std::vector<int64_t> PlacesWith(const Elements& x, uint64_t mask) {
  auto is_set = [&](int64_t i) {
    Word word;
    std::memcpy(&word, x.data + static_cast<size_t>(i) * sizeof(Word), sizeof(Word));
    return static_cast<size_t>((word & static_cast<Word>(mask)) != 0);
  };
  size_t count = 0;
  for (int64_t i = 0; i < x.count; ++i) count += is_set(i);
  std::vector<int64_t> places(count + 1);  // what is not taken is written once more behind the last
  size_t at = 0;
  for (int64_t i = 0; i < x.count; ++i) {
    places[at] = i;
    at += is_set(i);
  }
  places.resize(count);
  return places;
}

std::vector<int64_t> PlacesWith(const Elements& x, uint64_t mask) {
  switch (x.width) {
    case 1: return PlacesWith<uint8_t>(x, mask);
    case 2: return PlacesWith<uint16_t>(x, mask);
    case 4: return PlacesWith<uint32_t>(x, mask);
    default: return PlacesWith<uint64_t>(x, mask);
  }
}

uint64_t SignBit(const Elements& x) { return uint64_t{1} << (x.dtype.bits - 1); }

// A number that orders elements as they are: negative ones first, both zeros and all NaN equal, NaN
// last.
uint64_t OrderKey(const Elements& x, int64_t i) {
  uint64_t bits = x.Bits(i);
  uint64_t sign = SignBit(x);
  if (IsInt(x.dtype)) return bits ^ sign;
  if (!IsFloat(x.dtype)) return bits;
  uint64_t mantissa_bits = x.dtype == Float(64)   ? 52
                           : x.dtype == Float(32) ? 23
                           : IsBFloat(x.dtype)    ? 7
                                                  : 10;
  uint64_t infinity = (sign - 1) & ~((uint64_t{1} << mantissa_bits) - 1);
  uint64_t magnitude = bits & (sign - 1);
  if (magnitude > infinity) return ~uint64_t{0};
  if (magnitude == 0) return sign;
  return (bits & sign) != 0 ? sign - magnitude : sign + magnitude;
}

ffi::Tensor Int64Vector(const std::vector<int64_t>& values) {
  ffi::Tensor out = runtime::EmptyHostTensor({static_cast<int64_t>(values.size())}, Int(64));
  std::copy(values.begin(), values.end(), static_cast<int64_t*>(out.data_ptr()));
  return out;
}

// The tensor as `count` slices along an axis of `size` elements each; element e of slice s lies at
// Offset(s, e).
struct Slices {
  int64_t count, size, inner;

  int64_t Offset(int64_t s, int64_t e) const {
    return (e / inner) * count * inner + s * inner + e % inner;
  }
};

// Slices that are equal lie side by side in `order`, ascending; `begin` has where each group
// begins, and the end.
struct Groups {
  std::vector<int64_t> order, begin;

  size_t size() const { return begin.size() - 1; }
  int64_t First(size_t g) const { return order[static_cast<size_t>(begin[g])]; }
};

template <typename Differ>
void Divide(Groups* groups, const Differ& differ) {
  const auto count = static_cast<int64_t>(groups->order.size());
  for (int64_t n = 0; n < count; ++n) {
    if (n == 0 || differ(n - 1, n)) groups->begin.push_back(n);
  }
  groups->begin.push_back(count);
}

Groups GroupElements(const Elements& x) {
  std::vector<Keyed> keyed(static_cast<size_t>(x.count));
  for (int64_t i = 0; i < x.count; ++i) keyed[static_cast<size_t>(i)] = {OrderKey(x, i), i};
  SortByKey(&keyed);
  Groups groups;
  groups.order.reserve(keyed.size());
  for (const Keyed& k : keyed) groups.order.push_back(k.index);
  Divide(&groups, [&](int64_t a, int64_t b) {
    return keyed[static_cast<size_t>(a)].key != keyed[static_cast<size_t>(b)].key;
  });
  return groups;
}

// Slices are compared element by element.
Groups GroupSlices(const Elements& x, const Slices& slices) {
  auto compare = [&](int64_t a, int64_t b) {
    for (int64_t e = 0; e < slices.size; ++e) {
      uint64_t ka = OrderKey(x, slices.Offset(a, e));
      uint64_t kb = OrderKey(x, slices.Offset(b, e));
      if (ka != kb) return ka < kb ? -1 : 1;
    }
    return 0;
  };
  Groups groups;
  groups.order.resize(static_cast<size_t>(slices.count));
  std::iota(groups.order.begin(), groups.order.end(), int64_t{0});
  std::stable_sort(groups.order.begin(), groups.order.end(),
                   [&](int64_t a, int64_t b) { return compare(a, b) < 0; });
  Divide(&groups, [&](int64_t a, int64_t b) {
    return compare(groups.order[static_cast<size_t>(a)], groups.order[static_cast<size_t>(b)]) != 0;
  });
  return groups;
}

// The numbers of the groups in the order of results: ascending, or as they appear.
std::vector<size_t> OrderOf(const Groups& groups, bool sorted) {
  std::vector<size_t> order(groups.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (sorted) return order;
  std::vector<size_t> group_of(groups.order.size(),
                               groups.size());  // of slices that are a first one
  for (size_t g : order) group_of[static_cast<size_t>(groups.First(g))] = g;
  size_t n = 0;
  for (size_t g : group_of) {
    if (g < groups.size()) order[n++] = g;
  }
  return order;
}

}  // namespace

// (x) -> int64[ndim, count]
void Nonzero(Args args, ffi::Any* result) {
  Elements x = HostElements(args, 0);
  uint64_t mask = IsFloat(x.dtype) ? SignBit(x) - 1 : ~uint64_t{0};  // -0.0 is zero
  const std::vector<int64_t> found = PlacesWith(x, mask);
  auto ndim = static_cast<int64_t>(x.shape.size());
  auto count = static_cast<int64_t>(found.size());
  ffi::Tensor out = runtime::EmptyHostTensor({ndim, count}, Int(64));
  auto* indices = static_cast<int64_t*>(out.data_ptr());
  if (ndim == 1) std::copy(found.begin(), found.end(), indices);
  for (int64_t n = 0; n < count && ndim > 1; ++n) {
    int64_t rest = found[static_cast<size_t>(n)];
    for (int64_t d = ndim; d-- > 0;) {
      int64_t extent = x.shape[static_cast<size_t>(d)];
      indices[d * count + n] = rest % extent;
      rest /= extent;
    }
  }
  *result = Beside(x, std::move(out));
}

// (x, sorted, return_index, return_inverse, return_counts, axis?)
void Unique(Args args, ffi::Any* result) {
  Elements x = HostElements(args, 0);
  bool by_axis = args.size > 5 && args[5].type_index != kTVMFFINone;
  auto ndim = static_cast<int64_t>(x.shape.size());
  int64_t axis = by_axis ? args.Int(5) : 0;
  if (axis < 0) axis += ndim;
  if (by_axis && (axis < 0 || axis >= ndim)) {
    Fail(ErrorKind::kValueError, "unique: axis ", args.Int(5),
         " is out of range for a tensor with ", ndim, " dimensions");
  }
  Slices slices{x.count, 1, 1};
  std::vector<int64_t> shape = by_axis ? x.shape : std::vector<int64_t>{0};
  if (by_axis) {
    slices.count = x.shape[static_cast<size_t>(axis)];
    slices.inner =
        std::accumulate(x.shape.begin() + axis + 1, x.shape.end(), int64_t{1}, std::multiplies<>());
    slices.size = slices.count == 0 ? 0 : x.count / slices.count;
  }
  const Groups groups = by_axis ? GroupSlices(x, slices) : GroupElements(x);
  const std::vector<size_t> order = OrderOf(groups, args.Int(1) != 0);
  const auto count = static_cast<int64_t>(groups.size());
  shape[static_cast<size_t>(by_axis ? axis : 0)] = count;
  ffi::Tensor values =
      runtime::EmptyHostTensor(ffi::ShapeView(shape.data(), shape.size()), x.dtype);
  const Slices kept{count, slices.size, slices.inner};
  const size_t run = static_cast<size_t>(slices.inner) * x.width;
  std::vector<int64_t> index(order.size()), counts(order.size()),
      inverse(static_cast<size_t>(slices.count));
  for (size_t n = 0; n < order.size(); ++n) {
    const size_t g = order[n];
    index[n] = groups.First(g);
    counts[n] = groups.begin[g + 1] - groups.begin[g];
    for (int64_t e = 0; e < slices.size; e += slices.inner) {
      auto to = static_cast<size_t>(kept.Offset(static_cast<int64_t>(n), e));
      auto from = static_cast<size_t>(slices.Offset(index[n], e));
      std::memcpy(static_cast<char*>(values.data_ptr()) + to * x.width, x.data + from * x.width,
                  run);
    }
    for (int64_t at = groups.begin[g]; at < groups.begin[g + 1]; ++at) {
      inverse[static_cast<size_t>(groups.order[static_cast<size_t>(at)])] = static_cast<int64_t>(n);
    }
  }
  values = Beside(x, std::move(values));
  ffi::Array<ffi::Any> results{values};
  if (args.Int(2) != 0) results.push_back(Beside(x, Int64Vector(index)));
  if (args.Int(3) != 0) results.push_back(Beside(x, Int64Vector(inverse)));
  if (args.Int(4) != 0) results.push_back(Beside(x, Int64Vector(counts)));
  if (results.size() == 1) {
    *result = std::move(values);
  } else {
    *result = std::move(results);
  }
}

}  // namespace relaxvm::vm::builtins
