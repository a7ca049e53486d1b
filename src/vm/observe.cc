// SPDX-License-Identifier: Apache-2.0
// Instruments and profiles: what happens around every call while one of them is set.
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>

#include <utility>

#include "runtime/device.h"
#include "runtime/kernel_context.h"
#include "runtime/tensor.h"
#include "support/dtype.h"
#include "support/error.h"
#include "vm/call_context.h"
#include "vm/describe.h"
#include "vm/interpreter.h"
#include "vm/slow_path.h"
#include "vm/tail_chain.h"
#include "vm/virtual_machine.h"

namespace relaxvm::vm {
namespace ffi = tvm::ffi;

void VirtualMachine::SelectProgram() {
  bool is_watched;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    is_watched = instrument_ != nullptr || profile_ != nullptr;
    if (!is_watched || instrumented_ != nullptr) {
      current_.store(is_watched ? instrumented_.get() : plain_.get(), std::memory_order_release);
      return;
    }
  }
  std::unique_ptr<Program> program = MakeProgram(/*instrumented=*/true);
  std::lock_guard<std::mutex> lock(mutex_);
  // Two threads may come here at once; what a call runs must never go away.
  if (instrumented_ == nullptr) instrumented_ = std::move(program);
  current_.store(instrumented_.get(), std::memory_order_release);
}

void VirtualMachine::SetInstrument(ffi::Function instrument) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    instrument_ = instrument == nullptr
                      ? nullptr
                      : std::make_shared<const ffi::Function>(std::move(instrument));
  }
  SelectProgram();
}

void VirtualMachine::BeginProfile() {
  std::vector<ProfiledFunction> functions(data().func_table.size());
  for (size_t i = 0; i < functions.size(); ++i) {
    const std::string& name = data().func_table[i].name;
    if (data().func_table[i].kind != bytecode::FuncKind::kPackedFunc) continue;
    const RelaxvmKernelEntry* kernel = executable_->FindKernel(name);
    functions[i].work = executable_->FindWork(name);
    functions[i].kernel_params = kernel != nullptr ? kernel->params : nullptr;
    functions[i].function = plain_->func_pool[i].as<ffi::Object>();
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    profile_ = std::make_shared<Profile>(std::move(functions));
  }
  SelectProgram();
}

std::shared_ptr<const Profile> VirtualMachine::EndProfile() {
  std::shared_ptr<const Profile> result;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    result = std::move(profile_);
    profile_ = nullptr;
  }
  if (result == nullptr) Fail(ErrorKind::kRuntimeError, "no profile was begun");
  SelectProgram();
  return result;
}

namespace {

// Runs the operation that an instrumented call stands for.
int RunWrapped(CallContext* context, const Insn* ip, const Slot* args, Slot* result) {
  int32_t num_args = static_cast<int32_t>(ip->num_args);
  switch (static_cast<Op>(ip->aux)) {
    case Op::kCallPacked: {
      runtime::PackedThreads threads(context->kernel.num_threads);
      return ip->safe_call(ip->self, args, num_args, result);
    }
    case Op::kCallBuiltin: return ip->builtin(context, args, num_args, result);
    case Op::kCallVM:
    case Op::kCallTir:
      return Invoke(ip->function, {args, static_cast<size_t>(num_args)}, {}, result);
    default: return Raise("InternalError", "an instrumented call of an unknown kind");
  }
}

}  // namespace

namespace {

thread_local int32_t profiled_depth = 0;  // calls that are being recorded

std::string DescribeArgs(std::span<const Slot> args) {
  std::string text;
  for (const Slot& arg : args) {
    text += text.empty() ? "" : ", ";
    if (arg.type_index == kTVMFFITensor) {
      const DLTensor& tensor = runtime::Raw(View(&arg).cast<ffi::Tensor>());
      text += DTypeName(tensor.dtype) + "[";
      for (int i = 0; i < tensor.ndim; ++i)
        text += (i ? ", " : "") + std::to_string(tensor.shape[i]);
      text += "]";
    } else {
      text += DescribeValue(arg);
    }
  }
  return text;
}

// Bytes of the tensors among the arguments, those in tuples left out.
double BytesOf(std::span<const Slot> args) {
  double num_bytes = 0;
  for (const Slot& arg : args) {
    if (arg.type_index == kTVMFFITensor)
      num_bytes +=
          static_cast<double>(ffi::GetDataSize(runtime::Raw(View(&arg).cast<ffi::Tensor>())));
  }
  return num_bytes;
}

void WaitForDevices(std::span<const Slot> args) {
  for (const Slot& arg : args) {
    if (arg.type_index != kTVMFFITensor) continue;
    DLDevice device = runtime::Raw(View(&arg).cast<ffi::Tensor>()).device;
    if (!runtime::IsHost(device))
      runtime::GetDeviceApi(device)->Synchronize(device.device_id, nullptr);
  }
}

// What the compiler wrote down about a kernel, for these arguments.
void CountWork(const ProfiledFunction& function, std::span<const Slot> args, ProfileEvent* event) {
  if (function.work == nullptr || function.kernel_params == nullptr) return;
  std::vector<const DLTensor*> tensors;
  std::vector<int64_t> scalars;
  for (size_t i = 0; function.kernel_params[i] != 0 && i < args.size(); ++i) {
    if (function.kernel_params[i] != 't') {
      scalars.push_back(args[i].v_int64);
    } else if (args[i].type_index == kTVMFFITensor) {
      tensors.push_back(&runtime::Raw(View(&args[i]).cast<ffi::Tensor>()));
    }
  }
  event->operations = function.work->Operations(tensors, scalars);
  if (double bytes = function.work->Bytes(tensors, scalars); bytes >= 0) event->num_bytes = bytes;
}

// call_tir_dyn(kernel, tensors..., shape) counts as a call of the kernel.
size_t KernelBehind(const Slot& function, const Profile& profile) {
  const auto& functions = profile.functions();
  for (size_t i = 0; i < functions.size(); ++i) {
    bool is_it = function.type_index == kTVMFFIFunction && functions[i].function != nullptr &&
                 ffi::detail::ObjectUnsafe::GetHeader(functions[i].function) == function.v_obj;
    if (is_it && functions[i].kernel_params != nullptr) return i;
  }
  return functions.size();
}

}  // namespace

int VirtualMachine::RunProfiled(CallContext* context, const Insn* ip, const Slot* args,
                                Slot* result, Profile* profile) {
  if (profile == nullptr) return RunWrapped(context, ip, args, result);
  std::span<const Slot> given(args, ip->num_args);
  ProfileEvent event{static_cast<int64_t>(ip->func_index),
                     0,
                     0,
                     BytesOf(given),
                     -1,
                     ThreadNumber(),
                     profiled_depth,
                     DescribeArgs(given)};
  const bytecode::FuncInfo& info = data().func_table[ip->func_index];
  std::vector<Slot> spread;  // a shape's values in place of the shape
  std::span<const Slot> kernel_args = given;
  if (bytecode::FindBuiltin(info.name) == bytecode::Builtin::kCallTirDyn && !given.empty()) {
    if (size_t kernel = KernelBehind(given[0], *profile); kernel < profile->functions().size()) {
      event.func_index = static_cast<int64_t>(kernel);
      spread.assign(given.begin() + 1, given.end());
      if (!spread.empty() && spread.back().type_index == kTVMFFIShape) {
        ffi::Shape shape = View(&spread.back()).cast<ffi::Shape>();
        spread.pop_back();
        for (int64_t dim : shape) {
          Slot slot;
          Store(&slot, {kTVMFFIInt, static_cast<uint64_t>(dim)});
          spread.push_back(slot);
        }
      }
      kernel_args = spread;
    }
  }
  CountWork(profile->functions()[static_cast<size_t>(event.func_index)], kernel_args, &event);
  event.start_ns = profile->NowNs();
  ++profiled_depth;
  int code = RunWrapped(context, ip, args, result);
  --profiled_depth;
  if (code == 0) {
    try {
      WaitForDevices(given);
    } catch (const ffi::Error& error) {
      Drop(LoadResult(result));
      Store(result, Value::None());
      ffi::detail::SetSafeCallRaised(error);
      code = -1;
    }
  }
  event.duration_ns = profile->NowNs() - event.start_ns;
  profile->Add(std::move(event));
  return code;
}

namespace {

// The two calls of an instrument: (function, name, before_run, return value, args...).
class Watched {
 public:
  Watched(const ffi::Function& instrument, const ffi::Any& function, const std::string& name,
          std::span<const Slot> args)
      : instrument_(instrument), function_(function), name_(name), call_(4 + args.size()) {
    call_[0] = function_;
    call_[1] = name_;
    call_[3] = nullptr;
    dtype_names_.reserve(args.size());  // a dtype is passed as its name, as TVM does
    for (size_t i = 0; i < args.size(); ++i) {
      if (args[i].type_index == kTVMFFIDataType) {
        dtype_names_.emplace_back(DTypeName(args[i].v_dtype));
        call_[4 + i] = dtype_names_.back();
      } else {
        call_[4 + i] = View(&args[i]);
      }
    }
  }

  // Whether the call is to be made.
  bool Before() {
    constexpr int64_t kSkipRun = 1;
    call_[2] = true;
    return Call().try_cast<int64_t>().value_or(0) != kSkipRun;
  }
  void After(const Slot* result) {
    call_[2] = false;
    call_[3] = View(result);
    Call();
  }

 private:
  ffi::Any Call() {
    ffi::Any action;
    instrument_.CallPacked(call_.data(), static_cast<int32_t>(call_.size()), &action);
    return action;
  }

  const ffi::Function& instrument_;
  const ffi::Any& function_;
  ffi::String name_;
  std::vector<ffi::AnyView> call_;
  std::vector<ffi::String> dtype_names_;
};

}  // namespace

VirtualMachine::Watchers VirtualMachine::CurrentWatchers() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return {instrument_, profile_};
}

int VirtualMachine::CallWithInstrument(CallContext* context, const Insn* ip, const Slot* args,
                                       Slot* result) {
  auto [instrument, profile] = CurrentWatchers();
  if (instrument == nullptr) return RunProfiled(context, ip, args, result, profile.get());
  try {
    Watched watched(*instrument, program()->func_pool[ip->func_index],
                    data().func_table[ip->func_index].name, {args, ip->num_args});
    if (!watched.Before()) return 0;
    if (int code = RunProfiled(context, ip, args, result, profile.get()); code != 0) return code;
    watched.After(result);
  } catch (const ffi::Error& error) {
    Drop(LoadResult(result));
    Store(result, Value::None());
    ffi::detail::SetSafeCallRaised(error);
    return -1;
  }
  return 0;
}

namespace {

// The function that ran in the frame of a chain is done.
void EndEvent(TailChain* chain) {
  if (chain->profile == nullptr) return;
  chain->event.duration_ns = chain->profile->NowNs() - chain->event.start_ns;
  chain->profile->Add(std::move(chain->event));
  chain->profile = nullptr;
}

}  // namespace

TailAction VirtualMachine::BeforeTailCall(CallContext* context, const Insn* ip, const Slot* args) {
  auto [instrument, profile] = CurrentWatchers();
  std::span<const Slot> given(args, ip->num_args);
  TailChain* chain = context->tail_chain;
  try {
    if (instrument != nullptr) {
      Watched watched(*instrument, program()->func_pool[ip->func_index],
                      data().func_table[ip->func_index].name, given);
      if (!watched.Before()) return TailAction::kSkip;
      if (chain->calls.size() == TailChain::kMaxCalls) {
        // Nobody knows its result yet.
        AfterTailCall(chain->calls.front(), ffi::Any());
        chain->calls.pop_front();
      }
      TailChain::Call& call = chain->calls.emplace_back();
      call.func_index = ip->func_index;
      call.instrument = std::move(instrument);
      for (const Slot& arg : given) call.args.emplace_back(View(&arg));
    }
    EndEvent(chain);
    if (profile != nullptr) {
      chain->event = {static_cast<int64_t>(ip->func_index),
                      profile->NowNs(),
                      0,
                      BytesOf(given),
                      -1,
                      ThreadNumber(),
                      profiled_depth,
                      DescribeArgs(given)};
      chain->profile = std::move(profile);
    }
  } catch (const ffi::Error& error) {
    ffi::detail::SetSafeCallRaised(error);
    return TailAction::kFail;
  }
  return TailAction::kCall;
}

void VirtualMachine::AfterTailCall(const TailChain::Call& call, const ffi::Any& result) const {
  std::span<const Slot> args(reinterpret_cast<const Slot*>(call.args.data()), call.args.size());
  Watched(*call.instrument, program()->func_pool[static_cast<size_t>(call.func_index)],
          data().func_table[static_cast<size_t>(call.func_index)].name, args)
      .After(reinterpret_cast<const Slot*>(&result));
}

int VirtualMachine::RunWatched(CallContext* context, const Function* function, Slot* frame,
                               Slot* result) {
  TailChain chain;
  TailChain* outer = std::exchange(context->tail_chain, &chain);
  int code = RunFunction(context, function, frame, result);
  context->tail_chain = outer;
  EndEvent(&chain);
  if (code != 0 || chain.calls.empty()) return code;
  ffi::Any value = ffi::detail::AnyUnsafe::MoveTVMFFIAnyToAny(result);
  Store(result, Value::None());
  try {
    for (; !chain.calls.empty(); chain.calls.pop_back()) AfterTailCall(chain.calls.back(), value);
  } catch (const ffi::Error& error) {
    ffi::detail::SetSafeCallRaised(error);
    return -1;
  }
  Store(result, Release(std::move(value)));
  return 0;
}

}  // namespace relaxvm::vm
