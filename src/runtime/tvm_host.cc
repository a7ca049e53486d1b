// SPDX-License-Identifier: Apache-2.0
// Parallel loops, workspaces, errors and look-ups for kernels that TVM compiled.
#include "runtime/tvm_host.h"

#include <tvm/ffi/c_api.h>
#include <tvm/ffi/extra/c_env_api.h>

#include <mutex>
#include <string>

#include "runtime/kernel_context.h"

namespace relaxvm::runtime {
namespace {

// What TVM's generated code declares.
struct ParallelGroup {
  void* sync_handle;
  int32_t num_task;
};
using ParallelLambda = int (*)(int task_id, ParallelGroup* group, void* closure);

struct ParallelLoop {
  ParallelLambda lambda;
  void* closure;
  ParallelGroup group;
  std::mutex mutex;
  TVMFFIObjectHandle error = nullptr;  // of the first task that failed
};

// An error is a thread's own: it is taken from the worker and raised again where the loop began.
int RunTasks(void* data, int64_t begin, int64_t end) {
  auto* loop = static_cast<ParallelLoop*>(data);
  for (int64_t task = begin; task < end; ++task) {
    int code = loop->lambda(static_cast<int>(task), &loop->group, loop->closure);
    if (code == 0) continue;
    TVMFFIObjectHandle error = nullptr;
    TVMFFIErrorMoveFromRaised(&error);
    std::lock_guard<std::mutex> lock(loop->mutex);
    if (loop->error == nullptr) {
      loop->error = error;
    } else if (error != nullptr) {
      TVMFFIObjectDecRef(error);
    }
    return code;
  }
  return 0;
}

int Launch(ParallelLambda lambda, void* closure, int num_task, int num_threads) {
  if (num_task <= 0) num_task = num_threads;
  ParallelLoop loop{lambda, closure, {nullptr, num_task}, {}};
  int code;
  try {
    code = ProcessThreadPool().Run(num_threads, num_task, RunTasks, &loop);
  } catch (const std::exception&) {
    TVMFFIErrorSetRaisedFromCStr("RuntimeError", "the thread pool could not run a parallel loop");
    return -1;
  }
  if (loop.error != nullptr) {
    TVMFFIErrorSetRaised(loop.error);
    TVMFFIObjectDecRef(loop.error);
  } else if (code != 0) {
    TVMFFIErrorSetRaisedFromCStr("RuntimeError", "a parallel loop failed without a message");
  }
  return code;
}

int ParallelLaunch(ParallelLambda lambda, void* closure, int num_task) {
  return Launch(lambda, closure, num_task, NumPackedThreads());
}

// A barrier needs all tasks running at once, which a shared pool cannot promise: the loops of a
// library that uses barriers get one task each.
int SerialLaunch(ParallelLambda lambda, void* closure, int num_task) {
  if (num_task > 1) {
    TVMFFIErrorSetRaisedFromCStr("NotImplementedError",
                                 "a parallel loop with barriers asks for a number of threads");
    return -1;
  }
  return Launch(lambda, closure, 1, 1);
}

int BarrierOfOneTask(int, ParallelGroup*) { return 0; }

void* AllocWorkspace(int device_type, int, uint64_t num_bytes, int, int) {
  const RelaxvmKernelContext* context = DefaultKernelContext();
  void* data = device_type == kDLCPU ? context->alloc_workspace(context, num_bytes) : nullptr;
  if (data == nullptr) {
    std::string message = "a kernel asks for " + std::to_string(num_bytes) +
                          " bytes of scratch memory, which there are not";
    TVMFFIErrorSetRaisedFromCStr("RuntimeError", message.c_str());
  }
  return data;
}

int FreeWorkspace(int, int, void* data) {
  const RelaxvmKernelContext* context = DefaultKernelContext();
  context->free_workspace(context, data);
  return 0;
}

template <typename Function>
void* AddressOf(Function* function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace

void FillTvmSlots(const SharedLibrary& library, void* module) {
  const bool has_barriers = library.Symbol("__TVMBackendParallelBarrier") != nullptr;
  struct Row {
    const char* slot;
    void* value;
  };
  const Row rows[] = {
      {"__TVMBackendParallelLaunch",
       has_barriers ? AddressOf(SerialLaunch) : AddressOf(ParallelLaunch)},
      {"__TVMBackendParallelBarrier", AddressOf(BarrierOfOneTask)},
      {"__TVMBackendAllocWorkspace", AddressOf(AllocWorkspace)},
      {"__TVMBackendFreeWorkspace", AddressOf(FreeWorkspace)},
      {"__TVMFFIEnvModLookupFromImports", AddressOf(TVMFFIEnvModLookupFromImports)},
      {"__TVMFFIErrorSetRaisedFromCStr", AddressOf(TVMFFIErrorSetRaisedFromCStr)},
      {"__TVMFFIFunctionCall", AddressOf(TVMFFIFunctionCall)},
      {"__TVMFFIHandleInitOnce", AddressOf(TVMFFIHandleInitOnce)},
      {"__tvm_ffi__library_ctx", module},
  };
  for (const Row& row : rows) {
    if (void* slot = library.Symbol(row.slot)) *static_cast<void**>(slot) = row.value;
  }
}

}  // namespace relaxvm::runtime
