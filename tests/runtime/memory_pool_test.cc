// SPDX-License-Identifier: Apache-2.0
// Pools: reuse, statistics, limits; tensors in storages; the null device.
#include "runtime/memory_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "runtime/null_device.h"
#include "runtime/tensor.h"
#include "support/dtype.h"

namespace relaxvm::runtime {
namespace {

namespace ffi = tvm::ffi;
constexpr DLDevice kCpu{kDLCPU, 0};

TEST(MemoryPool, PooledReusesWhatNaiveGivesBack) {
  auto pooled = MemoryPool::Create(kCpu, AllocatorKind::kPooled);
  auto naive = MemoryPool::Create(kCpu, AllocatorKind::kNaive);
  for (int i = 0; i < 3; ++i) {
    pooled->Free(pooled->Alloc(1000));
    naive->Free(naive->Alloc(1000));
  }
  EXPECT_EQ(pooled->Stats().num_device_allocs, 1);
  EXPECT_EQ(naive->Stats().num_device_allocs, 3);
  EXPECT_EQ(naive->Stats().reserved_bytes, 0);
  EXPECT_EQ(pooled->Trim(), 1024);
  EXPECT_EQ(pooled->Stats().reserved_bytes, 0);
}

TEST(MemoryPool, CountsUsedAndPeakBytesAsAskedFor) {
  auto pool = MemoryPool::Create(kCpu, AllocatorKind::kPooled);
  MemoryBlock a = pool->Alloc(100), b = pool->Alloc(300);
  pool->Free(a);
  EXPECT_EQ(pool->Stats().used_bytes, 300);
  EXPECT_EQ(pool->Stats().peak_used_bytes, 400);
  pool->ResetPeak();
  EXPECT_EQ(pool->Stats().peak_used_bytes, 300);
  pool->Free(b);
}

TEST(MemoryPool, ManyShapesKeepMemoryFlat) {
  auto pool = MemoryPool::Create(kCpu, AllocatorKind::kPooled);
  std::mt19937 rng(1);
  int64_t most = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<MemoryBlock> blocks;
    for (int i = 0; i < 8; ++i) blocks.push_back(pool->Alloc(1 + rng() % (8 << 20)));
    for (const MemoryBlock& block : blocks) pool->Free(block);
    most = std::max(most, pool->Stats().peak_used_bytes);
  }
  EXPECT_LT(pool->Stats().peak_reserved_bytes, 2 * most + (32 << 20));
}

// A call that uses `first` bytes, then `second` of them beside `kept`.
void CallOnce(MemoryPool* pool, size_t first, size_t second, size_t kept) {
  const MemoryBlock small = pool->Alloc(kept), before = pool->Alloc(first);
  pool->Free(before);
  const MemoryBlock large = pool->Alloc(second);
  pool->Free(small);
  pool->Free(large);
}

TEST(MemoryPool, CallsWithTheSameSizesAskTheDeviceForNothing) {
  auto pool = MemoryPool::Create(kCpu, AllocatorKind::kPooled);
  for (int call = 0; call < 3; ++call) CallOnce(pool.get(), 3 << 20, 12 << 20, 1 << 20);
  const MemoryStats before = pool->Stats();
  for (int call = 0; call < 5; ++call) CallOnce(pool.get(), 3 << 20, 12 << 20, 1 << 20);
  EXPECT_EQ(pool->Stats().num_device_allocs, before.num_device_allocs);
  EXPECT_LE(pool->Stats().reserved_bytes, 17 << 20);
}

TEST(MemoryPool, SizesOneAfterTheOtherShareMemory) {
  auto pool = MemoryPool::Create(kCpu, AllocatorKind::kPooled);
  for (int call = 0; call < 3; ++call) {
    for (size_t size : {5 << 20, 1 << 20, 8 << 20, 2 << 20}) pool->Free(pool->Alloc(size));
  }
  EXPECT_EQ(pool->Stats().reserved_bytes, 8 << 20);
  EXPECT_EQ(pool->Stats().num_device_allocs, 2);  // the first one, and the largest
}

TEST(MemoryPool, PiecesOfARegionAreApartAndJoinAgain) {
  auto pool = MemoryPool::Create(kCpu, AllocatorKind::kPooled);
  pool->Free(pool->Alloc(16 << 20));
  std::mt19937 rng(2);
  for (int round = 0; round < 50; ++round) {
    std::vector<MemoryBlock> blocks;
    for (int i = 0; i < 8; ++i) {
      blocks.push_back(pool->Alloc((256 << 10) + rng() % (1 << 20)));
      std::memset(blocks.back().data, i, blocks.back().num_bytes);
    }
    std::shuffle(blocks.begin(), blocks.end(), rng);
    for (const MemoryBlock& block : blocks) {
      const auto* bytes = static_cast<const char*>(block.data);
      EXPECT_EQ(bytes[0], bytes[block.num_bytes - 1]);
      EXPECT_EQ(std::memcmp(bytes, bytes + 1, block.num_bytes - 1), 0);
      pool->Free(block);
    }
  }
  pool->Free(pool->Alloc(16 << 20));
  EXPECT_EQ(pool->Stats().num_device_allocs, 1);
  EXPECT_EQ(pool->Trim(), 16 << 20);
}

TEST(MemoryPool, WhatIsFreeBesideAPieceInUseGoesBack) {
  auto pool = MemoryPool::Create(kCpu, AllocatorKind::kPooled);
  pool->Free(pool->Alloc(16 << 20));
  const MemoryBlock kept = pool->Alloc(1 << 20);
  std::memset(kept.data, 7, kept.num_bytes);
  EXPECT_EQ(pool->Trim(), 15 << 20);
  EXPECT_EQ(pool->Stats().reserved_bytes, 1 << 20);
  const MemoryBlock again = pool->Alloc(8 << 20);
  std::memset(again.data, 1, again.num_bytes);
  EXPECT_EQ(static_cast<char*>(kept.data)[kept.num_bytes - 1], 7);
  EXPECT_EQ(pool->Stats().reserved_bytes, 9 << 20);
  pool->Free(kept);
  pool->Free(again);
  EXPECT_EQ(pool->Trim(), 9 << 20);
}

TEST(MemoryPool, BlocksAreAlignedAndApart) {
  auto pool = MemoryPool::Create(kCpu, AllocatorKind::kPooled);
  for (size_t size : {size_t{0}, size_t{1}, size_t{65}, size_t{5} << 20}) {
    MemoryBlock block = pool->Alloc(size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block.data) % 64, 0u);
    EXPECT_GE(block.reserved_bytes, size);
    std::memset(block.data, 1, size);
    pool->Free(block);
  }
}

TEST(MemoryPool, LimitIsAnErrorThatLeavesThePoolUsable) {
  auto pool = MemoryPool::Create(kCpu, AllocatorKind::kPooled, 1 << 20);
  pool->Free(pool->Alloc(900 << 10));
  MemoryBlock block = pool->Alloc(100 << 10);  // makes room by dropping the cached block
  EXPECT_THROW(pool->Alloc(2 << 20), ffi::Error);
  EXPECT_THROW(pool->Alloc(SIZE_MAX / 2), ffi::Error);
  EXPECT_EQ(pool->Stats().used_bytes, 100 << 10);
  pool->Free(block);
}

TEST(Tensor, KeepsItsStorageAndRefusesWhatDoesNotFit) {
  auto pool = MemoryPool::Create(kCpu, AllocatorKind::kNaive);
  ffi::Tensor tensor{ffi::UnsafeInit()};
  {
    Storage storage(pool, 100);
    tensor = AllocTensor(storage, 4, {2, 3, 4}, Float(32));
    EXPECT_THROW(AllocTensor(storage, 5, {2, 3, 4}, Float(32)), ffi::Error);
    EXPECT_THROW(AllocTensor(storage, -1, {1}, Float(32)), ffi::Error);
    EXPECT_THROW(AllocTensor(storage, 0, {-1}, Float(32)), ffi::Error);
    EXPECT_THROW(AllocTensor(storage, 0, {INT64_MAX, INT64_MAX}, Float(32)), ffi::Error);
    EXPECT_NO_THROW(AllocTensor(storage, 100, {INT64_MAX, 0}, Float(32)));
  }
  EXPECT_EQ(pool->Stats().used_bytes, 100);
  EXPECT_EQ(tensor.stride(0), 12);
  EXPECT_TRUE(tensor.IsContiguous());
  std::memset(tensor.data_ptr(), 0, 96);
  tensor = ffi::Tensor(ffi::UnsafeInit());
  EXPECT_EQ(pool->Stats().used_bytes, 0);
}

TEST(Tensor, CellsOfAnyRankAreRecycled) {
  auto pool = MemoryPool::Create(kCpu, AllocatorKind::kNaive);
  Storage storage(pool, 4);
  for (int round = 0; round < 3; ++round) {
    std::vector<ffi::Tensor> tensors;
    for (int i = 0; i < 600; ++i) {
      std::vector<int64_t> dims(static_cast<size_t>(i % 20), 1);
      tensors.push_back(AllocTensor(storage, 0, {dims.data(), dims.size()}, Float(32)));
      EXPECT_EQ(tensors.back().ndim(), i % 20);
    }
  }
}

TEST(NullDevice, RunsCopiesAndFreesLate) {
  constexpr DLDevice kNull{kDLNull, 0};
  auto pool = MemoryPool::Create(kNull, AllocatorKind::kNaive);
  float host[2] = {1, 2};
  MemoryBlock block = pool->Alloc(sizeof(host));
  std::memset(block.data, 0, sizeof(host));
  DeviceApi* api = GetDeviceApi(kNull);
  api->Copy(0, host, block.data, sizeof(host), nullptr);
  EXPECT_EQ(static_cast<float*>(block.data)[1], 0.0f);
  EXPECT_GE(GetNullDeviceStats().num_queued, 1);
  api->Synchronize(0, nullptr);
  EXPECT_EQ(static_cast<float*>(block.data)[1], 2.0f);
  pool->Free(block);
  EXPECT_EQ(static_cast<float*>(block.data)[1], 2.0f);  // still there: the free waits for its turn
  api->Synchronize(0, nullptr);
  EXPECT_EQ(GetNullDeviceStats().num_queued, 0);
}

TEST(NullDevice, FailureOfAKernelArrivesAtTheNextSynchronisation) {
  DeviceApi* api = GetNullDevice();
  api->Launch(0, nullptr, [] { return -1; });
  EXPECT_THROW(api->Synchronize(0, nullptr), ffi::Error);
  EXPECT_NO_THROW(api->Synchronize(0, nullptr));
}

}  // namespace
}  // namespace relaxvm::runtime
