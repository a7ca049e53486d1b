// SPDX-License-Identifier: Apache-2.0
// Slots of sequences and the ring of their last values.
#include "vm/kv/rnn_state.h"

#include <cstring>

#include "runtime/tensor.h"
#include "vm/describe.h"

namespace relaxvm::vm::kv {
namespace ffi = tvm::ffi;
namespace {

constexpr DLDataType kInt32{kDLInt, 32, 1};

std::string Describe(const ffi::Tensor& tensor) {
  return DescribeShape(tensor.shape().data(), tensor.shape().size()) + " of " +
         std::string(ffi::DLDataTypeToString(tensor.dtype()));
}

}  // namespace

RNNStateObj::RNNStateObj(RNNStateConfig config) : config_(std::move(config)) {
  const size_t num_states = config_.initial.size();
  if (config_.num_layers < 1 || config_.reserved_sequences < 1 || config_.max_history < 1 ||
      config_.reserved_sequences > INT32_MAX || config_.max_history > INT32_MAX) {
    Fail(ErrorKind::kValueError,
         "an RNN state needs at least one layer, sequence and value; given ", config_.num_layers,
         ", ", config_.reserved_sequences, " and ", config_.max_history);
  }
  if (num_states == 0 || config_.gets.size() != num_states || config_.sets.size() != num_states) {
    Fail(ErrorKind::kValueError,
         "an RNN state needs a get, a set and a first value for each state; given ",
         config_.gets.size(), ", ", config_.sets.size(), " and ", num_states);
  }
  for (const ffi::Tensor& initial : config_.initial) {
    if (!runtime::IsHost(initial.device()) || !initial.IsContiguous()) {
      Fail(ErrorKind::kValueError, "first values of an RNN state are dense tensors on the CPU");
    }
    value_bytes_.push_back(runtime::TensorBytes(initial.shape(), initial.dtype()));
  }
  for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
    for (const ffi::Tensor& initial : config_.initial) {
      std::vector<int64_t> shape = {config_.reserved_sequences, config_.max_history};
      shape.insert(shape.end(), initial.shape().begin(), initial.shape().end());
      storages_.push_back(runtime::EmptyHostTensor({shape.data(), shape.size()}, initial.dtype()));
    }
  }
  Clear();
}

void RNNStateObj::Clear() {
  sequences_.clear();
  batch_.clear();
  free_slots_.clear();
  for (int64_t slot = config_.reserved_sequences - 1; slot >= 0; --slot)
    free_slots_.push_back(slot);
}

const ffi::Tensor& RNNStateObj::Storage(int64_t layer, int64_t state) const {
  const auto num_states = static_cast<int64_t>(value_bytes_.size());
  if (layer < 0 || layer >= config_.num_layers || state < 0 || state >= num_states) {
    Fail(ErrorKind::kIndexError, "layer ", layer, ", state ", state, ": the RNN state has ",
         config_.num_layers, " layers of ", num_states, " states");
  }
  return storages_[static_cast<size_t>(layer * num_states + state)];
}

char* RNNStateObj::Cell(int64_t layer, int64_t state, int64_t slot, int64_t history) const {
  return runtime::DataOf(runtime::Raw(Storage(layer, state))) +
         (slot * config_.max_history + history) * value_bytes_[static_cast<size_t>(state)];
}

RNNStateObj::Sequence& RNNStateObj::Find(int64_t id) {
  auto at = sequences_.find(id);
  if (at == sequences_.end()) FailUnknown(id);
  return at->second;
}

int64_t RNNStateObj::TakeSlot() {
  if (free_slots_.empty()) {
    Fail(ErrorKind::kRuntimeError, "the RNN state is full: it has room for ",
         config_.reserved_sequences, " sequences");
  }
  int64_t slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

void RNNStateObj::DemandNoForward(const char* what) const {
  if (!batch_.empty()) {
    Fail(ErrorKind::kRuntimeError, what, " is not possible between begin_forward and end_forward");
  }
}

void RNNStateObj::AddSequence(int64_t id) {
  DemandNoForward("adding a sequence");
  if (sequences_.contains(id)) FailTaken(id);
  Sequence sequence{TakeSlot()};
  for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
    for (size_t state = 0; state < value_bytes_.size(); ++state) {
      if (value_bytes_[state] == 0) continue;
      std::memcpy(Cell(layer, static_cast<int64_t>(state), sequence.slot, 0),
                  runtime::DataOf(runtime::Raw(config_.initial[state])),
                  static_cast<size_t>(value_bytes_[state]));
    }
  }
  sequences_.emplace(id, sequence);
}

void RNNStateObj::RemoveSequence(int64_t id) {
  DemandNoForward("removing a sequence");
  free_slots_.push_back(Find(id).slot);
  sequences_.erase(id);
}

void RNNStateObj::StepBack(Sequence* sequence, int64_t id, int64_t count) const {
  if (count < 0 || count > sequence->num_steps) {
    Fail(ErrorKind::kValueError, "sequence ", id, " cannot go back ", count, " tokens: it keeps ",
         sequence->num_steps, " earlier values (max_history is ", config_.max_history,
         "; values inside of a longer append are not kept)");
  }
  sequence->history = (sequence->history - count + config_.max_history) % config_.max_history;
  sequence->num_steps -= count;
  sequence->length -= count;
}

void RNNStateObj::ForkSequence(int64_t parent, int64_t child, int64_t position) {
  DemandNoForward("forking a sequence");
  Sequence copy = Find(parent);
  if (sequences_.contains(child)) FailTaken(child);
  const int64_t from = copy.slot;
  if (position != -1) StepBack(&copy, parent, copy.length - position);
  copy.slot = TakeSlot();
  for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
    for (size_t state = 0; state < value_bytes_.size(); ++state) {
      if (value_bytes_[state] == 0) continue;
      const auto index = static_cast<int64_t>(state);
      std::memcpy(Cell(layer, index, copy.slot, 0), Cell(layer, index, from, 0),
                  static_cast<size_t>(value_bytes_[state] * config_.max_history));
    }
  }
  sequences_.emplace(child, copy);
}

void RNNStateObj::PopN(int64_t id, int64_t count) {
  DemandNoForward("going back");
  StepBack(&Find(id), id, count);
}

void RNNStateObj::BeginForward(ffi::ShapeView ids, ffi::ShapeView lengths,
                               std::optional<ffi::ShapeView> parents) {
  DemandNoForward("another begin_forward");
  if (parents) {
    Fail(ErrorKind::kValueError,
         "an RNN state follows one line of tokens; it takes no parents of tokens");
  }
  CheckBatch(ids, lengths);
  const auto batch = static_cast<int64_t>(ids.size());
  ffi::Tensor slots = runtime::EmptyHostTensor({&batch, 1}, kInt32);
  ffi::Tensor histories = runtime::EmptyHostTensor({&batch, 1}, kInt32);
  std::vector<std::pair<int64_t, int64_t>> rows;
  for (size_t i = 0; i < ids.size(); ++i) {
    const Sequence& sequence = Find(ids[i]);
    static_cast<int32_t*>(slots.data_ptr())[i] = static_cast<int32_t>(sequence.slot);
    static_cast<int32_t*>(histories.data_ptr())[i] = static_cast<int32_t>(sequence.history);
    rows.emplace_back(ids[i], lengths[i]);
  }
  slots_ = slots;
  histories_ = histories;
  batch_ = std::move(rows);
}

void RNNStateObj::EndForward() {
  if (batch_.empty()) Fail(ErrorKind::kRuntimeError, "end_forward without begin_forward");
  for (const auto& [id, length] : batch_) {
    Sequence& sequence = Find(id);
    sequence.length += length;
    sequence.history = (sequence.history + 1) % config_.max_history;
    // Only a value one token back is a value after a token.
    sequence.num_steps =
        length == 1 ? std::min(sequence.num_steps + 1, config_.max_history - 1) : 0;
  }
  batch_.clear();
}

void RNNStateObj::CheckRows(int64_t layer, int64_t state, const ffi::Tensor& rows) const {
  Storage(layer, state);
  if (batch_.empty()) {
    Fail(ErrorKind::kRuntimeError, "an RNN state is read and written after begin_forward");
  }
  const ffi::Tensor& value = config_.initial[static_cast<size_t>(state)];
  bool fits = rows.ndim() == value.ndim() + 1 && rows.dtype() == value.dtype() &&
              rows.size(0) == static_cast<int64_t>(batch_.size()) && runtime::IsHost(rows.device());
  for (int32_t i = 0; fits && i < value.ndim(); ++i) fits = rows.size(i + 1) == value.size(i);
  if (!fits) {
    Fail(ErrorKind::kValueError, "state ", state, " of ", batch_.size(), " sequences, each ",
         Describe(value), ", does not fit a tensor ", Describe(rows));
  }
}

void RNNStateObj::Get(int64_t layer, int64_t state, const ffi::Tensor& out) const {
  CheckRows(layer, state, out);
  config_.gets[static_cast<size_t>(state)](Storage(layer, state), slots_, histories_, out);
}

void RNNStateObj::Set(int64_t layer, int64_t state, const ffi::Tensor& data) const {
  CheckRows(layer, state, data);
  config_.sets[static_cast<size_t>(state)](Storage(layer, state), slots_, histories_, data);
}

ffi::Tensor RNNStateObj::Value(int64_t layer, int64_t state, int64_t id) const {
  Storage(layer, state);
  auto at = sequences_.find(id);
  if (at == sequences_.end()) FailUnknown(id);
  const ffi::Tensor& like = config_.initial[static_cast<size_t>(state)];
  ffi::Tensor copy = runtime::EmptyHostTensor(like.shape(), like.dtype());
  if (value_bytes_[static_cast<size_t>(state)] > 0) {
    std::memcpy(copy.data_ptr(), Cell(layer, state, at->second.slot, at->second.history),
                static_cast<size_t>(value_bytes_[static_cast<size_t>(state)]));
  }
  return copy;
}

}  // namespace relaxvm::vm::kv
