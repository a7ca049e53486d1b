// SPDX-License-Identifier: Apache-2.0
// Callbacks that generated code reaches through its context.
#include "runtime/kernel_context.h"

#include <pthread.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <vector>

#include <tvm/ffi/error.h>

#include "runtime/platform/cpus.h"
#include "runtime/platform/memory.h"

namespace relaxvm::runtime {
namespace {

static_assert(offsetof(RelaxvmKernelContext, abi_version) == 0);
static_assert(offsetof(RelaxvmKernelContext, num_threads) == 4);
static_assert(offsetof(RelaxvmKernelContext, parallel) == 8);
static_assert(offsetof(RelaxvmKernelContext, alloc_workspace) == 16);
static_assert(offsetof(RelaxvmKernelContext, free_workspace) == 24);
static_assert(offsetof(RelaxvmKernelContext, set_error) == 32);
static_assert(offsetof(RelaxvmKernelContext, stream) == 40);
static_assert(offsetof(RelaxvmKernelContext, interrupt) == 48);
static_assert(offsetof(RelaxvmKernelContext, host) == 56);
static_assert(offsetof(RelaxvmKernelContext, parallel_steps) == 64);

// Scratch blocks of one thread, kept between calls.  Kernels free in any order, mostly last in
// first out.
class Workspace {
 public:
  ~Workspace() { Release(); }

  void* Alloc(uint64_t num_bytes) {
    Block* best = nullptr;
    for (Block& block : blocks_) {
      if (!block.in_use && block.num_bytes >= num_bytes &&
          (best == nullptr || block.num_bytes < best->num_bytes)) {
        best = &block;
      }
    }
    if (best == nullptr) best = Grow(num_bytes);
    if (best == nullptr) return nullptr;
    best->in_use = true;
    return best->data;
  }

  void Free(void* data) {
    for (Block& block : blocks_) {
      if (block.data == data) block.in_use = false;
    }
  }

  void Release() {
    for (Block& block : blocks_) {
      if (!block.in_use) AlignedFree(block.data, block.num_bytes);
    }
    std::erase_if(blocks_, [](const Block& block) { return !block.in_use; });
  }

 private:
  struct Block {
    void* data;
    uint64_t num_bytes;
    bool in_use;
  };

  // Replaces the free blocks, all too small: what a thread keeps stays near the most it needed at
  // once.
  Block* Grow(uint64_t num_bytes) {
    Release();
    if (num_bytes > (uint64_t{1} << 48)) return nullptr;
    uint64_t size = (std::max<uint64_t>(num_bytes, 4096) + 4095) / 4096 * 4096;
    void* data = AlignedAlloc(size, 64);
    if (data == nullptr) return nullptr;
    blocks_.push_back({data, size, false});
    return &blocks_.back();
  }

  std::vector<Block> blocks_;
};

Workspace& ThreadWorkspace() {
  thread_local Workspace workspace;
  return workspace;
}

void* AllocWorkspace(const RelaxvmKernelContext*, uint64_t num_bytes) {
  try {
    return ThreadWorkspace().Alloc(num_bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void FreeWorkspace(const RelaxvmKernelContext*, void* data) { ThreadWorkspace().Free(data); }

thread_local int packed_threads = ThreadPool::kMaxShares;

// A context without a host's state is that of packed entries.
int NumThreads(const RelaxvmKernelContext* context, int64_t most) {
  const int granted = context->host == nullptr ? NumPackedThreads() : context->num_threads;
  return static_cast<int>(std::clamp<int64_t>(most, 1, granted));
}

struct LoopClosure {
  const RelaxvmKernelContext* context;
  RelaxvmTask task;
  void* closure;
};

int RunLoop(void* data, int64_t begin, int64_t end) {
  const LoopClosure* loop = static_cast<const LoopClosure*>(data);
  return loop->task(loop->context, loop->closure, begin, end);
}

int ReportPoolError(const RelaxvmKernelContext* context) {
  context->set_error(context, "RuntimeError", "the thread pool could not run a parallel loop");
  return kKernelError;
}

int Parallel(const RelaxvmKernelContext* context, RelaxvmTask task, void* closure, int64_t extent,
             int64_t most_threads) {
  LoopClosure loop{context, task, closure};
  try {
    return ProcessThreadPool().Run(NumThreads(context, most_threads), extent, RunLoop, &loop);
  } catch (const std::exception&) {
    return ReportPoolError(context);
  }
}

int ParallelSteps(const RelaxvmKernelContext* context, RelaxvmTask task, void* closure,
                  int64_t num_steps, int64_t units, int64_t most_threads) {
  LoopClosure loop{context, task, closure};
  try {
    return ProcessThreadPool().RunSteps(NumThreads(context, most_threads), num_steps, units,
                                        RunLoop, &loop);
  } catch (const std::exception&) {
    return ReportPoolError(context);
  }
}

void SetError(const RelaxvmKernelContext* context, const char* kind, const char* message) {
  KernelHost* host = static_cast<KernelHost*>(context->host);
  if (host == nullptr) {  // a packed entry without a VM: the error goes where its caller looks
    TVMFFIErrorSetRaisedFromCStr(kind, message);
    return;
  }
  if (host->claimed.exchange(1) == 0) host->error = {kind, message};
}

ThreadPool* g_pool = nullptr;

}  // namespace

RelaxvmKernelContext MakeKernelContext(KernelHost* host, int num_threads,
                                       const volatile int32_t* interrupt) {
  return {kKernelAbiVersion,
          std::max(1, num_threads),
          Parallel,
          AllocWorkspace,
          FreeWorkspace,
          SetError,
          /*stream=*/nullptr,
          interrupt,
          host,
          ParallelSteps};
}

const RelaxvmKernelContext* DefaultKernelContext() {
  static const RelaxvmKernelContext context =
      MakeKernelContext(nullptr, DefaultNumThreads(), nullptr);
  return &context;
}

PackedThreads::PackedThreads(int count) : before_(packed_threads) { packed_threads = count; }
PackedThreads::~PackedThreads() { packed_threads = before_; }
int NumPackedThreads() { return std::min(DefaultKernelContext()->num_threads, packed_threads); }

KernelHost::Error TakeKernelError(KernelHost* host) {
  KernelHost::Error error = host->error;
  host->error = {nullptr, nullptr};
  host->claimed.store(0);
  if (error.kind == nullptr) return {"RuntimeError", "the kernel failed without a message"};
  return error;
}

ThreadPool& ProcessThreadPool() {
  // The child of a fork has none of the workers: it starts over, and leaves the old pool as it is.
  [[maybe_unused]] static const bool once = [] {
    g_pool = new ThreadPool;
    g_pool->set_num_cpus(NumUsableCpus());
    pthread_atfork(nullptr, nullptr, [] {
      const int num_cpus = g_pool->num_cpus();
      g_pool = new ThreadPool;
      g_pool->set_num_cpus(num_cpus);
    });
    return true;
  }();
  return *g_pool;
}

void CountCpusAgain() { ProcessThreadPool().set_num_cpus(NumUsableCpus()); }

int DefaultNumThreads() {
  static const int count = [] {
    const char* text = std::getenv("RELAXVM_NUM_THREADS");
    int asked = text != nullptr ? std::atoi(text) : 0;
    return asked > 0 ? std::min(asked, ThreadPool::kMaxShares) : NumUsableCpus();
  }();
  return count;
}

void ReleaseThreadWorkspace() { ThreadWorkspace().Release(); }

}  // namespace relaxvm::runtime
