// SPDX-License-Identifier: Apache-2.0
// The recurrent state of sequences: for every layer and state a tensor (sequence slot, history
// slot, value...).
#pragma once

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>

#include <map>
#include <vector>

#include "vm/kv/state.h"

namespace relaxvm::vm::kv {

struct RNNStateConfig {
  int64_t num_layers;
  int64_t reserved_sequences;
  int64_t max_history;  // values kept for a sequence; all but the newest can be returned to
  // One for each state of a layer.  get(storage, sequence slots, history slots, out) reads history
  // slot h; set(storage, sequence slots, history slots, data) writes slot (h + 1) % max_history.
  std::vector<tvm::ffi::Function> gets, sets;
  std::vector<tvm::ffi::Tensor> initial;  // the value of a new sequence, of each state
};

class RNNStateObj : public KVStateObj {
 public:
  explicit RNNStateObj(RNNStateConfig config);

  void Clear() override;
  void AddSequence(int64_t id) override;
  void RemoveSequence(int64_t id) override;
  void ForkSequence(int64_t parent, int64_t child, int64_t position) override;
  void PopN(int64_t id, int64_t count) override;
  void BeginForward(tvm::ffi::ShapeView ids, tvm::ffi::ShapeView lengths,
                    std::optional<tvm::ffi::ShapeView> parents) override;
  void EndForward() override;

  // Of the sequences of this forward, one row each.
  void Get(int64_t layer, int64_t state, const tvm::ffi::Tensor& out) const;
  void Set(int64_t layer, int64_t state, const tvm::ffi::Tensor& data) const;
  // A copy of the newest value.
  tvm::ffi::Tensor Value(int64_t layer, int64_t state, int64_t id) const;

  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.RNNState", RNNStateObj, KVStateObj);

 private:
  struct Sequence {
    int64_t slot;
    int64_t history = 0;    // the slot of the newest value
    int64_t num_steps = 0;  // that can be taken back
    int64_t length = 0;     // tokens
  };
  const tvm::ffi::Tensor& Storage(int64_t layer, int64_t state) const;
  char* Cell(int64_t layer, int64_t state, int64_t slot, int64_t history) const;
  int64_t TakeSlot();
  Sequence& Find(int64_t id);
  void CheckRows(int64_t layer, int64_t state, const tvm::ffi::Tensor& rows) const;
  void DemandNoForward(const char* what) const;
  void StepBack(Sequence* sequence, int64_t id, int64_t count) const;

  RNNStateConfig config_;
  std::vector<tvm::ffi::Tensor> storages_;  // layer-major
  std::vector<int64_t> value_bytes_;        // of each state
  std::map<int64_t, Sequence> sequences_;
  std::vector<int64_t> free_slots_;
  std::vector<std::pair<int64_t, int64_t>> batch_;  // (id, tokens) of this forward; empty outside
  tvm::ffi::Tensor slots_{tvm::ffi::UnsafeInit()}, histories_{tvm::ffi::UnsafeInit()};
};

class RNNState : public KVState {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(RNNState, KVState, RNNStateObj);
};

}  // namespace relaxvm::vm::kv
