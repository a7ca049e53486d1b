// SPDX-License-Identifier: Apache-2.0
// What a model remembers of sequences between calls: the attention cache and the recurrent state
// share sequences, forks, steps back, and the bracket of BeginForward and EndForward round a call
// of the model.
#pragma once

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/object.h>

#include <atomic>
#include <optional>

#include "support/error.h"

namespace relaxvm::vm::kv {

class KVStateObj : public tvm::ffi::Object {
 public:
  // Forgets all sequences.
  virtual void Clear() = 0;
  virtual void AddSequence(int64_t id) = 0;
  virtual void RemoveSequence(int64_t id) = 0;
  // `child` begins as the first `position` tokens of `parent` (-1: all).
  virtual void ForkSequence(int64_t parent, int64_t child, int64_t position) = 0;
  // Forgets the last `count` tokens.
  virtual void PopN(int64_t id, int64_t count) = 0;
  // The next calls handle `lengths[i]` new tokens of sequence `ids[i]`; `parents`: of tokens that
  // form trees.
  virtual void BeginForward(tvm::ffi::ShapeView ids, tvm::ffi::ShapeView lengths,
                            std::optional<tvm::ffi::ShapeView> parents) = 0;
  virtual void EndForward() = 0;

  static constexpr bool _type_mutable = true;
  static constexpr int _type_child_slots = 2;
  TVM_FFI_DECLARE_OBJECT_INFO("relaxvm.KVState", KVStateObj, tvm::ffi::Object);

 private:
  friend class Use;
  std::atomic<bool> in_use_{false};
};

class KVState : public tvm::ffi::ObjectRef {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(KVState, tvm::ffi::ObjectRef, KVStateObj);
};

// One call at a time works on a state: another thread, or a kernel that calls back, gets an error.
class Use {
 public:
  explicit Use(KVStateObj* state) : state_(state) {
    if (state->in_use_.exchange(true, std::memory_order_acquire)) {
      Fail(ErrorKind::kRuntimeError,
           "the KV state is in use by another call; one thread at a time may work on it");
    }
  }
  ~Use() { state_->in_use_.store(false, std::memory_order_release); }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  KVStateObj* state_;
};

// One length of at least 1 for each sequence, every sequence once.  The caller looks the ids up.
void CheckBatch(tvm::ffi::ShapeView ids, tvm::ffi::ShapeView lengths);

[[noreturn]] void FailUnknown(int64_t id);
[[noreturn]] void FailTaken(int64_t id);

}  // namespace relaxvm::vm::kv
