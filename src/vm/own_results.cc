// SPDX-License-Identifier: Apache-2.0
// Results are compared by address with what the call was lent: a few nanoseconds each.
#include "vm/own_results.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "runtime/tensor.h"
#include "support/error.h"
#include "vm/virtual_machine.h"

namespace relaxvm::vm {
namespace ffi = tvm::ffi;
namespace {

// First byte and the one behind the last; an empty tensor has one, so that its address counts.
using Range = std::pair<const char*, const char*>;

Range RangeOf(const DLTensor& tensor) {
  const char* begin = runtime::DataOf(tensor);
  return {begin, begin + std::max<size_t>(ffi::GetDataSize(tensor), 1)};
}
bool Holds(const Range& range, const char* address) {
  return range.first <= address && address < range.second;
}

std::vector<Range> RangesOfConstants(const VirtualMachine& vm) {
  std::vector<Range> ranges;
  for (const ffi::Any& constant : vm.data().constants) {
    auto tensor = constant.as<ffi::Tensor>();
    if (tensor && runtime::IsHost(tensor->device()))
      ranges.push_back(RangeOf(runtime::Raw(*tensor)));
  }
  std::sort(ranges.begin(), ranges.end());
  return ranges;
}

// Throws TypeError for what a kernel would refuse later, or read wrongly.
const DLTensor& Lent(const ffi::AnyView& arg, int32_t index) {
  if (arg.type_index() != kTVMFFITensor)
    Fail(ErrorKind::kTypeError, "argument ", index, " is no tensor");
  const DLTensor& tensor = *arg.cast<DLTensor*>();
  size_t item_bytes = (static_cast<size_t>(tensor.dtype.bits) * tensor.dtype.lanes + 7) / 8;
  bool is_aligned =
      reinterpret_cast<uintptr_t>(runtime::DataOf(tensor)) % std::max<size_t>(item_bytes, 1) == 0;
  if (!runtime::IsHost(tensor.device) || !ffi::IsContiguous(tensor) || !is_aligned)
    Fail(ErrorKind::kTypeError, "argument ", index, " is no dense, aligned tensor of the host");
  return tensor;
}

class Owner {
 public:
  Owner(VirtualMachine* vm, ffi::Function function, int64_t num_results, ffi::Function receive)
      : function_(std::move(function)),
        num_results_(num_results),
        receive_(std::move(receive)),
        pool_(vm->PoolOf({kDLCPU, 0})),
        constants_(RangesOfConstants(*vm)) {}

  void operator()(ffi::PackedArgs args, ffi::Any* result) const {
    for (int32_t i = 0; i < args.size(); ++i) Lent(args[i], i);
    ffi::Any value;
    function_.CallPacked(args.data(), args.size(), &value);
    if (num_results_ == 1) {
      *result = Own(std::move(value), args);
      return;
    }
    auto tuple = value.cast<ffi::Array<ffi::Any>>();
    std::vector<ffi::Any> owned;
    owned.reserve(tuple.size());
    for (const ffi::Any& element : tuple) owned.push_back(Own(element, args));
    std::vector<ffi::AnyView> views(owned.begin(), owned.end());
    receive_.CallPacked(views.data(), static_cast<int32_t>(views.size()), result);
  }

 private:
  ffi::Any Own(ffi::Any value, ffi::PackedArgs args) const {
    if (value.type_index() == kTVMFFIArray) {  // a sequence
      ffi::Array<ffi::Any> owned;
      for (const ffi::Any& element : value.cast<ffi::Array<ffi::Any>>())
        owned.push_back(Own(element, args));
      return owned;
    }
    if (value.type_index() != kTVMFFITensor) return value;
    const DLTensor& tensor = *ffi::AnyView(value).cast<DLTensor*>();
    if (!runtime::IsHost(tensor.device) || !IsShared(runtime::DataOf(tensor), args)) return value;
    const ffi::ShapeView shape(tensor.shape, static_cast<size_t>(tensor.ndim));
    ffi::Tensor copy = pool_ == nullptr ? runtime::EmptyHostTensor(shape, tensor.dtype)
                                        : runtime::EmptyTensor(pool_, shape, tensor.dtype);
    runtime::CopyTensor(tensor, runtime::Raw(copy));
    return copy;
  }

  bool IsShared(const char* address, ffi::PackedArgs args) const {
    for (int32_t i = 0; i < args.size(); ++i) {
      if (Holds(RangeOf(*args[i].cast<DLTensor*>()), address)) return true;
    }
    auto behind =
        std::upper_bound(constants_.begin(), constants_.end(), address,
                         [](const char* a, const Range& range) { return a < range.first; });
    return behind != constants_.begin() && Holds(*(behind - 1), address);
  }

  ffi::Function function_;
  int64_t num_results_;
  ffi::Function receive_;
  std::shared_ptr<runtime::MemoryPool> pool_;  // null where the VM has none for the host
  std::vector<Range> constants_;               // sorted
};

}  // namespace

ffi::Function OwnResults(VirtualMachine* vm, ffi::Function function, int64_t num_results,
                         ffi::Function receive) {
  return ffi::Function::FromPacked(Owner(vm, std::move(function), num_results, std::move(receive)));
}

}  // namespace relaxvm::vm
