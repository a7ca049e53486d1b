// SPDX-License-Identifier: Apache-2.0
// A queued kernel has copies of its tensors' headers; their memory is freed in stream order.
#include "runtime/kernel_launch.h"

#include <tvm/ffi/container/tensor.h>

#include <memory>
#include <vector>

#include "runtime/device.h"
#include "runtime/kernel_context.h"
#include "runtime/tensor.h"
#include "support/error.h"

namespace relaxvm::runtime {
namespace ffi = tvm::ffi;
namespace {

bool IsOwned(const DLTensor& tensor, DLDevice device) {
  DeviceApi* api = FindDeviceApi(device.device_type);
  return api->Owns(device.device_id, DataOf(tensor), ffi::GetDataSize(tensor));
}

class Job {
 public:
  Job(const RelaxvmKernelEntry& kernel, std::span<const DLTensor* const> tensors,
      std::span<const int64_t> scalars, int num_threads, ffi::ObjectRef code)
      : kernel_(kernel),
        scalars_(scalars.begin(), scalars.end()),
        device_(tensors[0]->device),
        num_threads_(num_threads),
        code_(std::move(code)) {
    for (const DLTensor* tensor : tensors) {
      tensors_.push_back(*tensor);
      dims_.emplace_back(tensor->shape, tensor->shape + tensor->ndim);
      if (tensor->strides != nullptr)
        dims_.emplace_back(tensor->strides, tensor->strides + tensor->ndim);
    }
    size_t next = 0;
    for (DLTensor& tensor : tensors_) {
      tensor.shape = dims_[next++].data();
      if (tensor.strides != nullptr) tensor.strides = dims_[next++].data();
      tensor.device = DLDevice{kDLCPU, 0};  // the code is the CPU's, which reaches the memory
      pointers_.push_back(&tensor);
    }
  }

  int Run() const {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (IsOwned(tensors_[i], device_)) continue;
      Fail(ErrorKind::kRuntimeError, kernel_.name, ": the memory of tensor ", i, " on ",
           DeviceName(device_), " was freed before the kernel's turn");
    }
    KernelHost host;
    RelaxvmKernelContext context = MakeKernelContext(&host, num_threads_, nullptr);
    if (kernel_.direct(&context, pointers_.data(), scalars_.data()) == 0) return 0;
    KernelHost::Error error = TakeKernelError(&host);
    throw ffi::Error(error.kind, std::string(kernel_.name) + ": " + error.message, "");
  }

 private:
  RelaxvmKernelEntry kernel_;
  std::vector<DLTensor> tensors_;
  std::vector<std::vector<int64_t>> dims_;
  std::vector<const DLTensor*> pointers_;
  std::vector<int64_t> scalars_;
  DLDevice device_;
  int num_threads_;
  ffi::ObjectRef code_;
};

}  // namespace

int RunKernel(const RelaxvmKernelEntry& kernel, std::span<const DLTensor* const> tensors,
              std::span<const int64_t> scalars, const RelaxvmKernelContext* context,
              ffi::ObjectRef code) {
  DLDevice device = tensors.empty() ? DLDevice{kDLCPU, 0} : tensors[0]->device;
  DeviceApi* api = FindDeviceApi(device.device_type);
  bool can_run = api != nullptr && (IsHost(device) || device.device_type == kDLNull);
  if (!can_run) {
    Fail(ErrorKind::kValueError, kernel.name, " runs on the CPU, tensor 0 is on ",
         DeviceName(device), "; copy it with to_vdevice");
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!SameDevice(tensors[i]->device, device)) {
      Fail(ErrorKind::kValueError, kernel.name, ": tensor ", i, " is on ",
           DeviceName(tensors[i]->device), ", tensor 0 on ", DeviceName(device),
           "; copy it with to_vdevice");
    }
    if (!IsOwned(*tensors[i], device)) {
      Fail(ErrorKind::kValueError, kernel.name, ": tensor ", i, " says that it is on ",
           DeviceName(device), ", but its memory is not; allocate it there, or copy it");
    }
  }
  if (IsHost(device)) return kernel.direct(context, tensors.data(), scalars.data());
  auto job = std::make_shared<Job>(kernel, tensors, scalars, context->num_threads, std::move(code));
  api->Launch(device.device_id, nullptr, [job] { return job->Run(); });
  return 0;
}

}  // namespace relaxvm::runtime
