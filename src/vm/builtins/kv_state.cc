// SPDX-License-Identifier: Apache-2.0
// States of many sequences as builtins: what all have in common, and the recurrent one.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/function.h>

#include "vm/builtins/builtins.h"
#include "vm/kv/rnn_state.h"

namespace relaxvm::vm::builtins {
namespace ffi = tvm::ffi;
namespace {

template <typename StateObj, typename State>
StateObj* Find(const Args& args, const char* what) {
  auto state = args.view(0).try_cast<State>();
  if (!state || !state->defined()) args.WrongType(0, what);
  return const_cast<StateObj*>(state->get());  // the caller's slot keeps it alive
}

kv::KVStateObj* State(const Args& args) {
  return Find<kv::KVStateObj, kv::KVState>(args, "a KV cache or an RNN state");
}
kv::RNNStateObj* Rnn(const Args& args) {
  return Find<kv::RNNStateObj, kv::RNNState>(args, "an RNN state");
}

template <typename T>
std::vector<T> List(const Args& args, int32_t i, const char* what) {
  auto list = args.view(i).try_cast<ffi::Array<T>>();
  if (!list) args.WrongType(i, what);
  return {list->begin(), list->end()};
}

}  // namespace

void KVStateClear(Args args, ffi::Any*) {
  kv::Use use(State(args));
  State(args)->Clear();
}

void KVStateAddSequence(Args args, ffi::Any*) {
  kv::Use use(State(args));
  State(args)->AddSequence(args.Int(1));
}

void KVStateRemoveSequence(Args args, ffi::Any*) {
  kv::Use use(State(args));
  State(args)->RemoveSequence(args.Int(1));
}

// (state, parent, child[, position])
void KVStateForkSequence(Args args, ffi::Any*) {
  kv::Use use(State(args));
  State(args)->ForkSequence(args.Int(1), args.Int(2), args.size > 3 ? args.Int(3) : -1);
}

void KVStatePopN(Args args, ffi::Any*) {
  kv::Use use(State(args));
  State(args)->PopN(args.Int(1), args.Int(2));
}

// (state, sequences, lengths[, parents or None])
void KVStateBeginForward(Args args, ffi::Any*) {
  kv::Use use(State(args));
  std::optional<ffi::ShapeView> parents;
  if (args.size > 3 && args[3].type_index != kTVMFFINone) parents = args.Shape(3);
  State(args)->BeginForward(args.Shape(1), args.Shape(2), parents);
}

void KVStateEndForward(Args args, ffi::Any*) {
  kv::Use use(State(args));
  State(args)->EndForward();
}

// (layers, sequences, history, gets, sets, initial values)
void RNNStateCreate(Args args, ffi::Any* result) {
  kv::RNNStateConfig config{
      args.Int(0),
      args.Int(1),
      args.Int(2),
      List<ffi::Function>(args, 3, "an array of functions"),
      List<ffi::Function>(args, 4, "an array of functions"),
      List<ffi::Tensor>(args, 5, "an array of tensors"),
  };
  *result = ffi::detail::ObjectUnsafe::ObjectRefFromObjectPtr<kv::RNNState>(
      ffi::ObjectPtr<ffi::Object>(ffi::make_object<kv::RNNStateObj>(std::move(config))));
}

// (state, layer, index, out)
void RNNStateGet(Args args, ffi::Any* result) {
  kv::Use use(Rnn(args));
  Rnn(args)->Get(args.Int(1), args.Int(2), args.Tensor(3));
  *result = args.view(3);
}

// (state, layer, index, data)
void RNNStateSet(Args args, ffi::Any* result) {
  kv::Use use(Rnn(args));
  Rnn(args)->Set(args.Int(1), args.Int(2), args.Tensor(3));
  *result = args.view(0);
}

// (state, layer, index, sequence)
void RNNStateDebugGet(Args args, ffi::Any* result) {
  kv::Use use(Rnn(args));
  *result = Rnn(args)->Value(args.Int(1), args.Int(2), args.Int(3));
}

}  // namespace relaxvm::vm::builtins
