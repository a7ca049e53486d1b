// SPDX-License-Identifier: Apache-2.0
// Running a compiled model from C++.
//
//   relaxvm::VirtualMachine vm(relaxvm::Executable::Load("model.so"));
//   tvm::ffi::Function run = vm["main"];
//   tvm::ffi::Tensor y = run(x).cast<tvm::ffi::Tensor>();
#pragma once

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>

#include <cstdint>
#include <string>
#include <vector>

#include "relaxvm/executable.h"

namespace relaxvm {

struct VirtualMachineOptions {
  std::vector<DLDevice> devices;  // empty: the CPU
  bool pooled_memory =
      true;  // false: every block is taken from and given back to the device at once
  int64_t memory_limit_bytes = 0;  // for each device; 0 is no limit
  int num_threads = 0;             // most threads of a kernel; 0: what this process may use
};

struct MemoryUse {
  int64_t used_bytes = 0;
  int64_t peak_used_bytes = 0;
  int64_t reserved_bytes = 0;
  int64_t peak_reserved_bytes = 0;
};

// A reference: copies share one machine.  Any number of threads may call its functions at once.
class RELAXVM_PUBLIC VirtualMachine {
 public:
  explicit VirtualMachine(const Executable& executable, const VirtualMachineOptions& options = {});

  // A function of the executable; throws tvm::ffi::Error when there is none.  It keeps the machine
  // alive.
  tvm::ffi::Function operator[](const std::string& name) const;

  MemoryUse Memory(int64_t device = 0) const;
  // Gives cached memory back to the devices; returns how many bytes.
  int64_t TrimMemory();
  void SetNumThreads(int count);
  // Most time for each call, which then throws a TimeoutError; 0 is no limit.
  void SetTimeLimitMs(double milliseconds);

  const tvm::ffi::Module& module() const { return module_; }

 private:
  tvm::ffi::Module module_;
};

// A tensor whose values are not set.
RELAXVM_PUBLIC tvm::ffi::Tensor Empty(const std::vector<int64_t>& shape, DLDataType dtype,
                                      DLDevice device = {kDLCPU, 0});
// Copies values between tensors of equal shape and dtype; done when it returns.
RELAXVM_PUBLIC void Copy(const tvm::ffi::Tensor& from, const tvm::ffi::Tensor& to);

}  // namespace relaxvm
