// SPDX-License-Identifier: Apache-2.0
// Sequences: lists of tensors whose length is known only while running.  An array (a tuple of the
// VM, a list of Python) is as good as a sequence where one is read.
#include "vm/sequence.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "support/dtype.h"
#include "vm/builtins/builtins.h"

namespace relaxvm::vm {
namespace ffi = tvm::ffi;

SequenceObj::SequenceObj(std::vector<ffi::Any> items)
    : storage_(std::make_shared<Storage>()), size_(items.size()) {
  storage_->items = std::move(items);
}

ffi::Any SequenceObj::At(size_t i) const {
  std::lock_guard<std::mutex> lock(storage_->mutex);
  return storage_->items[i];
}

std::vector<ffi::Any> SequenceObj::Items() const {
  std::lock_guard<std::mutex> lock(storage_->mutex);
  return {storage_->items.begin(), storage_->items.begin() + static_cast<std::ptrdiff_t>(size_)};
}

Sequence::Sequence(std::vector<ffi::Any> items)
    : ffi::ObjectRef(ffi::make_object<SequenceObj>(std::move(items))) {}

Sequence Sequence::Append(ffi::Any item) const {
  SequenceObj::Storage& storage = *get()->storage_;
  {
    std::lock_guard<std::mutex> lock(storage.mutex);
    if (storage.items.size() == get()->size_) {
      storage.items.push_back(std::move(item));
      auto longer = ffi::make_object<SequenceObj>();
      longer->storage_ = get()->storage_;
      longer->size_ = get()->size_ + 1;
      return Sequence(std::move(longer));
    }
  }
  std::vector<ffi::Any> items = get()->Items();
  items.push_back(std::move(item));
  return Sequence(std::move(items));
}

namespace builtins {
namespace {

bool IsArray(const Slot& value) {
  return value.type_index == kTVMFFIArray || value.type_index == kTVMFFIList;
}

Sequence SequenceOf(const Args& args, int32_t i) {
  if (args[i].type_index == SequenceObj::RuntimeTypeIndex()) {
    return args.view(i).cast<Sequence>();
  }
  if (!IsArray(args[i])) args.WrongType(i, "a sequence");
  const auto& cell = *reinterpret_cast<const TVMFFISeqCell*>(
      reinterpret_cast<const char*>(args[i].v_obj) + sizeof(TVMFFIObject));
  const auto* items = static_cast<const ffi::Any*>(cell.data);
  return Sequence(std::vector<ffi::Any>(items, items + cell.size));
}

// An integer, or a host tensor that holds one.
int64_t IntegerOf(const Args& args, int32_t i) {
  if (args[i].type_index == kTVMFFIInt) return args.Int(i);
  const DLTensor& t = args.TensorView(i);
  const bool one = std::all_of(t.shape, t.shape + t.ndim, [](int64_t d) { return d == 1; });
  if (!one || !runtime::IsHost(t.device) || (t.dtype != Int(64) && t.dtype != Int(32))) {
    args.WrongType(i, "an integer, or a tensor with one on the CPU");
  }
  const void* data = runtime::DataOf(t);
  return t.dtype == Int(64) ? *static_cast<const int64_t*>(data)
                            : *static_cast<const int32_t*>(data);
}

// Position `i` of `size` places, counted from the end when negative.
size_t PositionOf(const Args& args, int32_t i, size_t size, const char* what) {
  int64_t position = IntegerOf(args, i);
  auto places = static_cast<int64_t>(size);
  if (position < -places || position >= places) {
    Fail(ErrorKind::kIndexError, what, ": position ", position, " is out of range, there are ",
         places);
  }
  return static_cast<size_t>(position < 0 ? position + places : position);
}

struct Piece {
  const char* data;
  std::vector<int64_t> shape;
};

Piece PieceOf(const ffi::Any& item, DLDataType dtype) {
  auto tensor = item.try_cast<ffi::Tensor>();
  const DLTensor* held = tensor.has_value() ? tensor->GetDLTensorPtr() : nullptr;
  if (held == nullptr || !runtime::IsHost(held->device) || !ffi::IsContiguous(*held) ||
      held->dtype != dtype) {
    Fail(ErrorKind::kTypeError, "an item of the sequence is no contiguous tensor of type ",
         DTypeName(dtype), " on the CPU");
  }
  const DLTensor& t = *held;
  return {static_cast<const char*>(runtime::DataOf(t)), {t.shape, t.shape + t.ndim}};
}

int64_t Product(const std::vector<int64_t>& dims, size_t begin, size_t end) {
  return std::accumulate(dims.begin() + static_cast<std::ptrdiff_t>(begin),
                         dims.begin() + static_cast<std::ptrdiff_t>(end), int64_t{1},
                         std::multiplies<>());
}

ffi::Tensor Empty(const std::vector<int64_t>& shape, DLDataType dtype) {
  return runtime::EmptyHostTensor(ffi::ShapeView(shape.data(), shape.size()), dtype);
}

size_t AxisOf(int64_t axis, size_t ndim, const char* what) {
  auto rank = static_cast<int64_t>(ndim);
  if (axis < -rank || axis >= rank) {
    Fail(ErrorKind::kValueError, what, ": axis ", axis, " is out of range for ", rank,
         " dimensions");
  }
  return static_cast<size_t>(axis < 0 ? axis + rank : axis);
}

}  // namespace

void SequenceEmpty(Args, ffi::Any* result) { *result = Sequence(std::vector<ffi::Any>{}); }

// (sequence, item, position?)
void SequenceInsert(Args args, ffi::Any* result) {
  Sequence sequence = SequenceOf(args, 0);
  ffi::Any item(args.view(1));
  if (args.size < 3) {
    *result = sequence.Append(std::move(item));
    return;
  }
  size_t at = PositionOf(args, 2, sequence->size() + 1, "sequence_insert");
  std::vector<ffi::Any> items = sequence->Items();
  items.insert(items.begin() + static_cast<std::ptrdiff_t>(at), std::move(item));
  *result = Sequence(std::move(items));
}

// (sequence, position?)
void SequenceErase(Args args, ffi::Any* result) {
  Sequence sequence = SequenceOf(args, 0);
  if (sequence->size() == 0) {
    Fail(ErrorKind::kIndexError, "sequence_erase: the sequence is empty");
  }
  size_t at = args.size < 2 ? sequence->size() - 1
                            : PositionOf(args, 1, sequence->size(), "sequence_erase");
  std::vector<ffi::Any> items = sequence->Items();
  items.erase(items.begin() + static_cast<std::ptrdiff_t>(at));
  *result = Sequence(std::move(items));
}

// (sequence, position)
void SequenceAt(Args args, ffi::Any* result) {
  Sequence sequence = SequenceOf(args, 0);
  *result = sequence->At(PositionOf(args, 1, sequence->size(), "sequence_at"));
}

void SequenceLength(Args args, ffi::Any* result) {
  *result = ffi::Shape({static_cast<int64_t>(SequenceOf(args, 0)->size())});
}

void SequenceToArray(Args args, ffi::Any* result) {
  ffi::Array<ffi::Any> items;
  for (ffi::Any& item : SequenceOf(args, 0)->Items()) items.push_back(std::move(item));
  *result = std::move(items);
}

// (sequence, axis, new_axis, dtype, item_shape): an empty sequence gives a tensor without elements,
// its other dimensions from `item_shape`.
void SequenceConcat(Args args, ffi::Any* result) {
  const bool stack = args.Int(2) != 0;
  DLDataType dtype = args.DType(3);
  std::vector<Piece> pieces;
  for (const ffi::Any& item : SequenceOf(args, 0)->Items()) pieces.push_back(PieceOf(item, dtype));
  ffi::ShapeView item_shape = args.Shape(4);
  std::vector<int64_t> shape(item_shape.begin(), item_shape.end());
  if (!pieces.empty()) shape = pieces[0].shape;
  const size_t axis = AxisOf(args.Int(1), shape.size() + (stack ? 1 : 0), "sequence_concat");
  auto at = static_cast<std::ptrdiff_t>(axis);
  for (Piece& piece : pieces) {
    bool fits = piece.shape.size() == shape.size();
    for (size_t d = 0; fits && d < shape.size(); ++d) {
      fits = piece.shape[d] == shape[d] || (!stack && d == axis);
    }
    if (!fits) {
      Fail(ErrorKind::kValueError, "sequence_concat: the items have different shapes");
    }
  }
  if (stack) {
    for (Piece& piece : pieces) piece.shape.insert(piece.shape.begin() + at, 1);
    shape.insert(shape.begin() + at, 1);
  }
  shape[axis] = 0;
  for (const Piece& piece : pieces) shape[axis] += piece.shape[axis];
  ffi::Tensor out = Empty(shape, dtype);
  auto width = static_cast<int64_t>(dtype.bits / 8);
  const int64_t outer = Product(shape, 0, axis);
  const int64_t inner = Product(shape, axis + 1, shape.size()) * width;
  auto* to = static_cast<char*>(out.data_ptr());
  for (int64_t o = 0; o < outer; ++o) {
    for (const Piece& piece : pieces) {
      const int64_t bytes = piece.shape[axis] * inner;
      if (bytes > 0) std::memcpy(to, piece.data + o * bytes, static_cast<size_t>(bytes));
      to += bytes;
    }
  }
  *result = std::move(out);
}

// (x, axis, keepdims, sizes?): parts of `sizes` (a tensor of one dimension, or one number for all
// parts but the last) along an axis; without sizes, of one element each.
void SequenceSplit(Args args, ffi::Any* result) {
  const DLTensor& x = args.TensorView(0);
  if (!runtime::IsHost(x.device) || !ffi::IsContiguous(x)) {
    args.WrongType(0, "a contiguous tensor on the CPU");
  }
  std::vector<int64_t> shape(x.shape, x.shape + x.ndim);
  const size_t axis = AxisOf(args.Int(1), shape.size(), "sequence_split");
  const bool keepdims = args.Int(2) != 0;
  const int64_t size = shape[axis];
  std::vector<int64_t> sizes;
  if (args.size > 3 && args.TensorView(3).ndim == 1) {
    const DLTensor& given = args.TensorView(3);
    for (int64_t i = 0; i < given.shape[0]; ++i) {
      const void* data = runtime::DataOf(given);
      sizes.push_back(given.dtype == Int(32) ? static_cast<const int32_t*>(data)[i]
                                             : static_cast<const int64_t*>(data)[i]);
    }
  } else {
    const int64_t each = args.size > 3 ? IntegerOf(args, 3) : 1;
    if (each <= 0) Fail(ErrorKind::kValueError, "sequence_split: a part has ", each, " elements");
    for (int64_t i = 0; i < size; i += each) sizes.push_back(std::min(each, size - i));
  }
  const int64_t outer = Product(shape, 0, axis);
  const auto width = static_cast<int64_t>(x.dtype.bits / 8);
  const int64_t inner = Product(shape, axis + 1, shape.size()) * width;
  std::vector<ffi::Any> parts;
  int64_t start = 0;
  for (int64_t length : sizes) {
    if (length < 0 || length > size - start) {
      Fail(ErrorKind::kValueError, "sequence_split: the parts do not add up to ", size);
    }
    std::vector<int64_t> part_shape = shape;
    part_shape[axis] = length;
    if (!keepdims) part_shape.erase(part_shape.begin() + static_cast<std::ptrdiff_t>(axis));
    ffi::Tensor part = Empty(part_shape, x.dtype);
    for (int64_t o = 0; o < outer && length * inner > 0; ++o) {
      const auto bytes = static_cast<size_t>(length * inner);
      std::memcpy(static_cast<char*>(part.data_ptr()) + o * length * inner,
                  static_cast<const char*>(runtime::DataOf(x)) + (o * size + start) * inner, bytes);
    }
    parts.emplace_back(std::move(part));
    start += length;
  }
  if (start != size) {
    Fail(ErrorKind::kValueError, "sequence_split: the parts add up to ", start, ", not ", size);
  }
  *result = Sequence(std::move(parts));
}

void OptionalHasElement(Args args, ffi::Any* result) {
  ffi::Tensor answer = runtime::EmptyHostTensor({}, Bool());
  *static_cast<uint8_t*>(answer.data_ptr()) = args[0].type_index == kTVMFFINone ? 0 : 1;
  *result = std::move(answer);
}

}  // namespace builtins
}  // namespace relaxvm::vm
