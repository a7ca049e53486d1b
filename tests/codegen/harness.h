// SPDX-License-Identifier: Apache-2.0
// Compiles tensor programs and runs them on plain arrays, through the direct or the packed entry.
#pragma once

#include <gtest/gtest.h>
#include <tvm/ffi/c_api.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "codegen/llvm/kernels.h"
#include "ir/prim.h"
#include "tir/tensor.h"

namespace relaxvm::codegen::testing {

namespace ffi = tvm::ffi;

// A host like the runtime's: threads, workspaces, one error slot.
struct Host {
  std::string kind, message;
  int64_t most_shares = 0;  // of a parallel loop
  int allocated = 0, freed = 0, parallel_loops = 0, steps_loops = 0;
  int32_t interrupt = 0;
  RelaxvmKernelContext context{};

  explicit Host(int num_threads = 1) {
    context.abi_version = kKernelAbiVersion;
    context.num_threads = num_threads;
    context.parallel = Parallel;
    context.alloc_workspace = Alloc;
    context.free_workspace = Free;
    context.set_error = SetError;
    context.interrupt = &interrupt;
    context.host = this;
    context.parallel_steps = ParallelSteps;
  }

  static Host* Of(const RelaxvmKernelContext* context) { return static_cast<Host*>(context->host); }
  static int Parallel(const RelaxvmKernelContext* context, RelaxvmTask task, void* closure,
                      int64_t extent, int64_t most_threads) {
    ++Of(context)->parallel_loops;
    int64_t shares = std::min<int64_t>({extent, context->num_threads, most_threads});
    Of(context)->most_shares = std::max(Of(context)->most_shares, shares);
    std::vector<std::thread> threads;
    std::vector<int> results(static_cast<size_t>(shares));
    for (int64_t i = 0; i < shares; ++i) {
      threads.emplace_back([=, &results] {
        results[static_cast<size_t>(i)] =
            task(context, closure, extent * i / shares, extent * (i + 1) / shares);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (int rc : results) {
      if (rc != 0) return rc;
    }
    return 0;
  }
  static int ParallelSteps(const RelaxvmKernelContext* context, RelaxvmTask task, void* closure,
                           int64_t num_steps, int64_t units, int64_t) {
    ++Of(context)->steps_loops;
    for (int64_t step = 0; step < num_steps; ++step) {
      for (int64_t unit = units; unit-- > 0;) {  // in any order inside a step
        const int64_t at = step * units + unit;
        if (int rc = task(context, closure, at, at + 1)) return rc;
      }
    }
    return 0;
  }
  static void* Alloc(const RelaxvmKernelContext* context, uint64_t num_bytes) {
    __atomic_add_fetch(&Of(context)->allocated, 1, __ATOMIC_SEQ_CST);
    return std::aligned_alloc(64, (num_bytes + 63) / 64 * 64);
  }
  static void Free(const RelaxvmKernelContext* context, void* data) {
    __atomic_add_fetch(&Of(context)->freed, 1, __ATOMIC_SEQ_CST);
    std::free(data);
  }
  static void SetError(const RelaxvmKernelContext* context, const char* kind, const char* message) {
    Of(context)->kind = kind;
    Of(context)->message = message;
  }
};

// A tensor that refers to memory of the test.
struct View {
  std::vector<int64_t> shape;
  DLTensor tensor{};

  View(void* data, std::vector<int64_t> dims, DLDataType dtype) : shape(std::move(dims)) {
    tensor.data = data;
    tensor.device = {kDLCPU, 0};
    tensor.ndim = static_cast<int32_t>(shape.size());
    tensor.dtype = dtype;
    tensor.shape = shape.data();
  }
  View(const View& other) : shape(other.shape), tensor(other.tensor) {
    tensor.shape = shape.data();
  }
  View& operator=(const View&) = delete;
};

inline ir::IRModule ModuleOf(const std::vector<std::pair<std::string, tir::PrimFunc>>& programs) {
  ir::IRModule mod(ffi::Map<ir::GlobalVar, ir::BaseFunc>{});
  for (const auto& [name, func] : programs) mod.Update(name, func);
  return mod;
}

class Kernel {
 public:
  explicit Kernel(const tir::PrimFunc& func, const std::string& target = "llvm") {
    KernelOptions options;
    options.target = target;
    options.num_threads = 1;
    set_ = BuildKernels(ModuleOf({{"f", func}}), options);
    loaded_ = LoadInMemory(set_);
  }

  int Run(Host& host, const std::vector<View>& views,
          const std::vector<int64_t>& scalars = {}) const {
    std::vector<const DLTensor*> tensors;
    for (const View& view : views) tensors.push_back(&view.tensor);
    return loaded_.table->kernels[0].direct(&host.context, tensors.data(), scalars.data());
  }
  void Must(const std::vector<View>& views, const std::vector<int64_t>& scalars = {},
            int num_threads = 1) const {
    Host host(num_threads);
    ASSERT_EQ(Run(host, views, scalars), 0) << host.kind << ": " << host.message;
    ASSERT_EQ(host.allocated, host.freed);
  }
  const LoadedKernels& loaded() const { return loaded_; }
  const KernelSet& set() const { return set_; }

 private:
  KernelSet set_;
  LoadedKernels loaded_;
};

}  // namespace relaxvm::codegen::testing
