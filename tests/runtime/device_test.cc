// SPDX-License-Identifier: Apache-2.0
// Devices: streams, events and frees in stream order; what is used too early or belongs elsewhere
// is an error.
#include "runtime/device.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "runtime/kernel_context.h"
#include "runtime/kernel_launch.h"
#include "runtime/memory_pool.h"
#include "runtime/null_device.h"
#include "runtime/platform/memory.h"
#include "runtime/tensor.h"
#include "support/dtype.h"

namespace relaxvm::runtime {
namespace {

namespace ffi = tvm::ffi;
constexpr DLDevice kNull{kDLNull, 0};
constexpr DLDevice kSecondCpu{kDLCPU, 1};

std::string ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const ffi::Error& error) {
    return std::string(error.message());
  }
  return "";
}

// A block of the null device that is given back at the end.
class Block {
 public:
  explicit Block(size_t num_bytes) : num_bytes_(num_bytes) {
    data_ = GetNullDevice()->Alloc(0, num_bytes, 64);
  }
  ~Block() {
    GetNullDevice()->Free(0, data_, num_bytes_, nullptr);
    GetNullDevice()->Synchronize(0, nullptr);
  }
  char* data() { return static_cast<char*>(data_); }

 private:
  void* data_;
  size_t num_bytes_;
};

TEST(NullDevice, FreshMemoryHoldsNoZeros) {
  Block block(16);
  EXPECT_EQ(static_cast<unsigned char>(block.data()[7]), 0xDB);
}

TEST(NullDevice, CopyReadsTheHostBeforeItReturnsAndWritesItWhenSynchronised) {
  DeviceApi* api = GetNullDevice();
  Block block(4);
  char in[4] = {1, 2, 3, 4}, out[4] = {0, 0, 0, 0};
  api->Copy(0, in, block.data(), 4, nullptr);
  std::memset(in, 9, 4);  // the caller may reuse its memory
  api->Copy(0, block.data(), out, 4, nullptr);
  EXPECT_EQ(out[0], 0);
  api->Synchronize(0, nullptr);
  EXPECT_EQ(out[3], 4);
}

TEST(NullDevice, StreamsRunApartUntilOneWaitsForAnEventOfTheOther) {
  DeviceApi* api = GetNullDevice();
  for (bool waits : {false, true}) {
    Stream a = api->CreateStream(0), b = api->CreateStream(0);
    std::vector<int> order;
    auto note = [&order](int number) {
      return [&order, number] {
        order.push_back(number);
        return 0;
      };
    };
    api->Launch(0, a, note(1));
    if (waits) api->WaitEvent(0, b, api->RecordEvent(0, a));
    api->Launch(0, a, note(2));  // behind the event
    api->Launch(0, b, note(3));
    api->Synchronize(0, b);
    EXPECT_EQ(order, waits ? (std::vector<int>{1, 3}) : std::vector<int>{3});
    api->Synchronize(0, a);
    EXPECT_EQ(order.back(), 2);
    api->DestroyStream(0, a);
    api->DestroyStream(0, b);
  }
}

TEST(NullDevice, IndicesHaveQueuesOfTheirOwn) {
  DeviceApi* api = GetNullDevice();
  bool has_run = false;
  api->Launch(1, nullptr, [&] {
    has_run = true;
    return 0;
  });
  api->Synchronize(0, nullptr);
  EXPECT_FALSE(has_run);
  api->Synchronize(1, nullptr);
  EXPECT_TRUE(has_run);
}

TEST(NullDevice, FreeWaitsForTheWorkBeforeItAndPoisonsAfterwards) {
  DeviceApi* api = GetNullDevice();
  void* data = api->Alloc(0, 64, 64);
  char out = 0;
  api->Launch(0, nullptr, [&] {
    static_cast<char*>(data)[0] = 5;
    return 0;
  });
  api->Copy(0, data, &out, 1, nullptr);
  api->Free(0, data, 64, nullptr);
  EXPECT_TRUE(api->Owns(0, data, 64));
  api->Synchronize(0, nullptr);
  EXPECT_EQ(out, 5);
  EXPECT_FALSE(api->Owns(0, data, 64));
}

TEST(NullDevice, WorkOnMemoryThatAnotherStreamFreedIsAnError) {
  DeviceApi* api = GetNullDevice();
  Stream other = api->CreateStream(0);
  void* data = api->Alloc(0, 64, 64);
  char out = 0;
  api->Copy(0, data, &out, 1, nullptr);
  api->Free(0, data, 64, other);  // nothing orders it behind the copy
  api->Synchronize(0, other);
  EXPECT_NE(ErrorOf([&] { api->Synchronize(0, nullptr); }).find("freed before its turn"),
            std::string::npos);
  api->DestroyStream(0, other);
}

TEST(NullDevice, FirstFailureArrivesAndTheRestStillRuns) {
  DeviceApi* api = GetNullDevice();
  int num_run = 0;
  for (int i = 0; i < 3; ++i) {
    api->Launch(0, nullptr, [&num_run, i]() -> int {
      ++num_run;
      throw ffi::Error("ValueError", "work " + std::to_string(i), "");
    });
  }
  EXPECT_EQ(ErrorOf([&] { api->Synchronize(0, nullptr); }), "work 0");
  EXPECT_EQ(num_run, 3);
  EXPECT_EQ(ErrorOf([&] { api->Synchronize(0, nullptr); }), "");
}

TEST(NullDevice, CopyBetweenTwoStrangersIsRefused) {
  char a[4] = {}, b[4] = {};
  EXPECT_NE(ErrorOf([&] { GetNullDevice()->Copy(0, a, b, 4, nullptr); }), "");
}

// ---- a second CPU index

TEST(SecondCpu, OwnsWhatItGaveAndNothingElse) {
  DeviceApi* api = GetDeviceApi(kSecondCpu);
  char* data = static_cast<char*>(api->Alloc(1, 100, 64));
  char foreign[4] = {};
  EXPECT_TRUE(api->Owns(1, data + 96, 4));
  EXPECT_FALSE(api->Owns(1, data + 96, 5));
  EXPECT_FALSE(api->Owns(1, foreign, 1));
  EXPECT_FALSE(api->Owns(2, data, 1));
  EXPECT_TRUE(api->Owns(0, foreign, 1));
  api->Free(1, data, 100, nullptr);
  EXPECT_FALSE(api->Owns(1, data, 1));
}

ffi::Tensor Foreign(float* data, int64_t count, DLDevice device) {
  return MakeTensor(data, {count}, Float(32), device, ffi::ObjectRef());
}

int Twice(const RelaxvmKernelContext*, const DLTensor* const* tensors, const int64_t*) {
  for (int64_t i = 0; i < tensors[0]->shape[0]; ++i)
    static_cast<float*>(tensors[1]->data)[i] = 2 * static_cast<float*>(tensors[0]->data)[i];
  return 0;
}

class Kernel {
 public:
  int Run(const ffi::Tensor& in, const ffi::Tensor& out) {
    const DLTensor* tensors[] = {&Raw(in), &Raw(out)};
    RelaxvmKernelContext context = MakeKernelContext(&host_, 1, nullptr);
    RelaxvmKernelEntry entry{"twice", "tt", Twice, nullptr};
    return RunKernel(entry, tensors, {}, &context, ffi::ObjectRef());
  }

 private:
  KernelHost host_;
};

TEST(SecondCpu, KernelRefusesForeignMemory) {
  auto pool = MemoryPool::Create(kSecondCpu, AllocatorKind::kPooled);
  ffi::Tensor in = EmptyTensor(pool, {2}, Float(32)), out = EmptyTensor(pool, {2}, Float(32));
  float host[2] = {1, 2};
  CopyTensor(Raw(Foreign(host, 2, {kDLCPU, 0})), Raw(in));
  EXPECT_EQ(Kernel().Run(in, out), 0);
  EXPECT_EQ(static_cast<float*>(out.data_ptr())[1], 4);
  EXPECT_NE(ErrorOf([&] {
              Kernel().Run(Foreign(host, 2, kSecondCpu), out);
            }).find("says that it is on cpu(1), but its memory is not"),
            std::string::npos);
  EXPECT_NE(ErrorOf([&] {
              Kernel().Run(Foreign(host, 2, {kDLCPU, 0}), out);
            }).find("tensor 1 is on cpu(1), tensor 0 on cpu(0)"),
            std::string::npos);
}

TEST(SecondCpu, CopyRefusesForeignMemory) {
  float host[2] = {1, 2};
  ffi::Tensor target = EmptyHostTensor({2}, Float(32));
  EXPECT_NE(
      ErrorOf([&] { CopyTensor(Raw(Foreign(host, 2, kSecondCpu)), Raw(target)); }).find("cpu(1)"),
      std::string::npos);
}

TEST(Copy, GoesThroughTheHostBetweenTwoDevices) {
  auto pool = MemoryPool::Create(kNull, AllocatorKind::kPooled);
  auto other = MemoryPool::Create({kDLNull, 1}, AllocatorKind::kPooled);
  ffi::Tensor a = EmptyTensor(pool, {2}, Float(32)), b = EmptyTensor(other, {2}, Float(32));
  float in[2] = {3, 4}, out[2] = {0, 0};
  CopyTensor(Raw(Foreign(in, 2, {kDLCPU, 0})), Raw(a));
  CopyTensor(Raw(a), Raw(b));
  CopyTensor(Raw(b), Raw(Foreign(out, 2, {kDLCPU, 0})));
  EXPECT_EQ(out[1], 4);
}

// ---- kernels that wait

TEST(QueuedKernel, RunsWhenItsResultIsRead) {
  auto pool = MemoryPool::Create(kNull, AllocatorKind::kNaive);
  ffi::Tensor in = EmptyTensor(pool, {2}, Float(32)), out = EmptyTensor(pool, {2}, Float(32));
  float host[2] = {1, 2}, result[2] = {0, 0};
  CopyTensor(Raw(Foreign(host, 2, {kDLCPU, 0})), Raw(in));
  EXPECT_EQ(Kernel().Run(in, out), 0);
  EXPECT_NE(static_cast<float*>(out.data_ptr())[0], 2);  // a missing synchronisation shows
  in = ffi::Tensor(ffi::UnsafeInit());                   // freed behind the kernel
  CopyTensor(Raw(out), Raw(Foreign(result, 2, {kDLCPU, 0})));
  EXPECT_EQ(result[1], 4);
}

TEST(QueuedKernel, MemoryThatWasFreedOutOfOrderIsAnError) {
  auto pool = MemoryPool::Create(kNull, AllocatorKind::kNaive);
  ffi::Tensor out = EmptyTensor(pool, {2}, Float(32));
  DeviceApi* api = GetNullDevice();
  Stream other = api->CreateStream(0);
  void* data = api->Alloc(0, 64, 64);
  Kernel().Run(Foreign(static_cast<float*>(data), 2, kNull), out);
  api->Free(0, data, 64, other);
  api->Synchronize(0, other);
  EXPECT_NE(ErrorOf([&] { api->Synchronize(0, nullptr); }).find("freed before the kernel's turn"),
            std::string::npos);
  api->DestroyStream(0, other);
}

// ---- alignment

TEST(MemoryPool, BlocksAreAlignedAsAskedOnEveryDevice) {
  for (DLDevice device : {DLDevice{kDLCPU, 0}, kSecondCpu, kNull}) {
    for (AllocatorKind kind : {AllocatorKind::kNaive, AllocatorKind::kPooled}) {
      auto pool = MemoryPool::Create(device, kind);
      for (size_t alignment = 64; alignment <= (size_t{8} << 20); alignment *= 8) {
        for (size_t size : {size_t{1}, size_t{100} << 10, size_t{1} << 20, size_t{5} << 20}) {
          MemoryBlock block = pool->Alloc(size, alignment);
          EXPECT_EQ(reinterpret_cast<uintptr_t>(block.data) % alignment, 0u)
              << DeviceName(device) << " " << size << " " << alignment;
          pool->Free(block);
        }
      }
    }
  }
  GetNullDevice()->Synchronize(0, nullptr);
}

}  // namespace
}  // namespace relaxvm::runtime
