// SPDX-License-Identifier: Apache-2.0
// Loading, look-up of functions, instruments, the stateful interface.
#include "vm/virtual_machine.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>

#include "runtime/device.h"
#include "runtime/tensor.h"
#include "support/dtype.h"
#include "support/error.h"
#include "vm/call_context.h"
#include "vm/closure.h"
#include "vm/interpreter.h"
#include "vm/loader.h"
#include "vm/slow_path.h"

namespace relaxvm::vm {
namespace ffi = tvm::ffi;

namespace {
GlobalFunctionFinder g_finder = nullptr;
}  // namespace

void SetGlobalFunctionFinder(GlobalFunctionFinder finder) { g_finder = finder; }

std::optional<ffi::Function> FindGlobalFunction(const std::string& name) {
  return g_finder != nullptr ? g_finder(name) : std::nullopt;
}

TVMFFIObject* VMModuleObject(VirtualMachine* vm) {
  return ffi::detail::ObjectUnsafe::GetHeader(vm);
}

ffi::Function WeakFunction(VirtualMachine* vm, int64_t func_index) {
  ffi::WeakObjectPtr<VirtualMachine> weak(
      ffi::detail::ObjectUnsafe::ObjectPtrFromUnowned<VirtualMachine>(vm));
  return ffi::Function::FromPacked([weak, func_index](ffi::PackedArgs args, ffi::Any* result) {
    ffi::ObjectPtr<VirtualMachine> strong = weak.lock();
    if (strong == nullptr)
      Fail(ErrorKind::kRuntimeError, "the VM that this function belongs to is gone");
    const Function* function = strong->program()->functions[static_cast<size_t>(func_index)].get();
    Slot out;
    Store(&out, Value::None());
    std::span<const Slot> slots(reinterpret_cast<const Slot*>(args.data()),
                                static_cast<size_t>(args.size()));
    if (Invoke(function, slots, {}, &out) != 0) throw ffi::detail::MoveFromSafeCallRaised();
    *result = ffi::detail::AnyUnsafe::MoveTVMFFIAnyToAny(&out);
  });
}

ffi::ObjectPtr<VirtualMachine> VirtualMachine::Create(ffi::ObjectPtr<ExecutableModule> executable,
                                                      std::vector<DeviceConfig> devices) {
  auto vm = ffi::make_object<VirtualMachine>(std::move(executable));
  vm->Load(std::move(devices));
  return vm;
}

VirtualMachine* VirtualMachine::From(const ffi::Module& module) {
  return dynamic_cast<VirtualMachine*>(const_cast<ffi::ModuleObj*>(module.operator->()));
}

void VirtualMachine::Load(std::vector<DeviceConfig> devices) {
  if (devices.empty() || !runtime::IsHost(devices.back().device))
    devices.push_back({DLDevice{kDLCPU, 0}});
  for (const DeviceConfig& config : devices) {
    pools_.push_back(
        runtime::MemoryPool::Create(config.device, config.allocator, config.memory_limit_bytes));
  }
  num_threads_ = runtime::DefaultNumThreads();
  plain_ = MakeProgram(/*instrumented=*/false);
  current_ = plain_.get();
}

// Constants live on the first device; a memory scope of its own only exists on devices that have
// one.
ffi::Any VirtualMachine::OnDevice(const ffi::Any& constant) const {
  auto tensor = constant.as<ffi::Tensor>();
  if (!tensor || runtime::IsHost(pools_[0]->device())) return constant;
  ffi::Tensor copy = runtime::EmptyTensor(pools_[0], tensor->shape(), tensor->dtype());
  runtime::CopyTensor(runtime::Raw(*tensor), runtime::Raw(copy));
  return copy;
}

std::unique_ptr<Program> VirtualMachine::MakeProgram(bool instrumented) {
  std::vector<ffi::Any> constants;
  if (plain_ != nullptr) {
    constants = plain_->constants;
  } else {
    for (const ffi::Any& constant : data().constants) constants.push_back(OnDevice(constant));
  }
  FunctionSources sources;
  sources.find_kernel = [this](const std::string& name) { return executable_->FindKernel(name); };
  sources.find_native = [this](const std::string& name) { return executable_->FindNative(name); };
  sources.find_import = [this](const std::string& name) { return executable_->FindImport(name); };
  sources.find_global = FindGlobalFunction;
  return LoadProgram(data(), std::move(constants), this, sources, {.instrumented = instrumented});
}

std::vector<const Program*> VirtualMachine::AllPrograms() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<const Program*> programs = {plain_.get()};
  if (instrumented_ != nullptr) programs.push_back(instrumented_.get());
  return programs;
}

ffi::ObjectRef VirtualMachine::Self() {
  return ffi::Module(ffi::ObjectPtr<ffi::ModuleObj>(
      ffi::detail::ObjectUnsafe::ObjectPtrFromUnowned<VirtualMachine>(this)));
}

const std::shared_ptr<runtime::MemoryPool>& VirtualMachine::pool(int64_t index) const {
  if (index == -1) return pools_.back();
  if (index < 0 || static_cast<size_t>(index) >= pools_.size()) {
    Fail(ErrorKind::kIndexError, "device ", index, " of the VM, which has ", pools_.size());
  }
  return pools_[static_cast<size_t>(index)];
}

void VirtualMachine::set_num_threads(int count) {
  if (count < 1 || count > ThreadPool::kMaxShares) {
    Fail(ErrorKind::kValueError, "num_threads must be between 1 and ", ThreadPool::kMaxShares,
         ", it is ", count);
  }
  num_threads_ = count;
}

void VirtualMachine::set_stack_bytes(int64_t num_bytes) {
  constexpr int64_t kLeast = int64_t{64} << 10, kMost = int64_t{64} << 30;
  if (num_bytes < kLeast || num_bytes > kMost) {
    Fail(ErrorKind::kValueError, "the stack limit must be between ", kLeast, " and ", kMost,
         " bytes, it is ", num_bytes);
  }
  stack_bytes_ = num_bytes;
}

ffi::Optional<ffi::Function> VirtualMachine::FindFunction(const std::string& name) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (auto it = saved_.find(name); it != saved_.end()) return it->second;
  }
  const bytecode::FuncInfo* info = data().FindFunction(name);
  if (info == nullptr || info->kind == bytecode::FuncKind::kPackedFunc) return std::nullopt;
  return MakeClosure(this, data().func_index.at(name));
}

const bytecode::FuncInfo& VirtualMachine::InfoOf(const std::string& function) const {
  const bytecode::FuncInfo* info = data().FindFunction(function);
  if (info == nullptr || info->kind == bytecode::FuncKind::kPackedFunc) {
    Fail(ErrorKind::kValueError, "Unknown function: ", function);
  }
  return *info;
}

// ---- instruments --------------------------------------------------------------

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
  {
    std::lock_guard<std::mutex> lock(mutex_);
    profile_ = std::make_shared<Profile>();
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
    case Op::kCallPacked: return ip->safe_call(ip->self, args, num_args, result);
    case Op::kCallBuiltin: return ip->builtin(context, args, num_args, result);
    case Op::kCallVM:
    case Op::kCallTir:
      return Invoke(ip->function, {args, static_cast<size_t>(num_args)}, {}, result);
    default: return Raise("InternalError", "an instrumented call of an unknown kind");
  }
}

}  // namespace

int VirtualMachine::RunProfiled(CallContext* context, const Insn* ip, const Slot* args,
                                Slot* result, Profile* profile) {
  if (profile == nullptr) return RunWrapped(context, ip, args, result);
  thread_local int32_t depth = 0;
  ProfileEvent event{
      static_cast<int64_t>(ip->func_index), profile->NowNs(), 0, 0, ThreadNumber(), depth};
  for (uint32_t i = 0; i < ip->num_args; ++i) {
    if (args[i].type_index != kTVMFFITensor) continue;
    event.num_bytes +=
        static_cast<int64_t>(ffi::GetDataSize(runtime::Raw(View(&args[i]).cast<ffi::Tensor>())));
  }
  ++depth;
  int code = RunWrapped(context, ip, args, result);
  --depth;
  event.duration_ns = profile->NowNs() - event.start_ns;
  profile->Add(event);
  return code;
}

int VirtualMachine::CallWithInstrument(CallContext* context, const Insn* ip, const Slot* args,
                                       Slot* result) {
  std::shared_ptr<const ffi::Function> instrument;
  std::shared_ptr<Profile> profile;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    instrument = instrument_;
    profile = profile_;
  }
  if (instrument == nullptr) return RunProfiled(context, ip, args, result, profile.get());
  constexpr int64_t kSkipRun = 1;
  const std::string& name = data().func_table[ip->func_index].name;
  // (function, name, before_run, return value, args...)
  std::vector<ffi::AnyView> call(4 + ip->num_args);
  ffi::Any function = program()->func_pool[ip->func_index];
  ffi::String symbol(name);
  call[0] = function;
  call[1] = symbol;
  call[2] = true;
  call[3] = nullptr;
  // A dtype is passed as its name, as TVM does.
  std::vector<ffi::String> dtype_names;
  dtype_names.reserve(ip->num_args);
  for (uint32_t i = 0; i < ip->num_args; ++i) {
    if (args[i].type_index == kTVMFFIDataType) {
      dtype_names.emplace_back(DTypeName(args[i].v_dtype));
      call[4 + i] = dtype_names.back();
    } else {
      call[4 + i] = View(&args[i]);
    }
  }
  try {
    ffi::Any action;
    instrument->CallPacked(call.data(), static_cast<int32_t>(call.size()), &action);
    if (action.try_cast<int64_t>().value_or(0) == kSkipRun) return 0;
    if (int code = RunProfiled(context, ip, args, result, profile.get()); code != 0) return code;
    call[2] = false;
    call[3] = View(result);
    instrument->CallPacked(call.data(), static_cast<int32_t>(call.size()), &action);
  } catch (const ffi::Error& error) {
    Drop(LoadResult(result));
    Store(result, Value::None());
    ffi::detail::SetSafeCallRaised(error);
    return -1;
  }
  return 0;
}

// ---- stateful interface -------------------------------------------------------

void VirtualMachine::SetInput(const std::string& function, std::vector<ffi::Any> args) {
  const bytecode::FuncInfo& info = InfoOf(function);
  if (static_cast<int64_t>(args.size()) != info.num_args) {
    Fail(ErrorKind::kValueError,
         "The number of provided parameters doesn't match the number of arguments for function ",
         function, ": it takes ", info.num_args, ", ", args.size(), " are given");
  }
  for (ffi::Any& arg : args) {
    auto tensor = arg.as<ffi::Tensor>();
    if (!tensor || runtime::SameDevice(tensor->device(), pools_[0]->device())) continue;
    ffi::Tensor copy = runtime::EmptyTensor(pools_[0], tensor->shape(), tensor->dtype());
    runtime::CopyTensor(runtime::Raw(*tensor), runtime::Raw(copy));
    arg = copy;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  inputs_[function] = std::move(args);
}

void VirtualMachine::InvokeStateful(const std::string& function) {
  const bytecode::FuncInfo& info = InfoOf(function);
  std::vector<ffi::Any> args;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    auto it = inputs_.find(function);
    if (it != inputs_.end()) {
      args = it->second;
    } else if (info.num_args != 0) {
      Fail(ErrorKind::kValueError, "No inputs set for stateful call of ", function,
           "; call set_input first");
    }
  }
  std::vector<ffi::AnyView> views(args.begin(), args.end());
  ffi::Any result;
  FindFunction(function).value().CallPacked(views.data(), static_cast<int32_t>(views.size()),
                                            &result);
  std::lock_guard<std::mutex> lock(mutex_);
  outputs_[function] = std::move(result);
}

namespace {

// The element of nested tuples that `path` leads to.
ffi::Any Element(ffi::Any value, const std::vector<int64_t>& path) {
  for (int64_t index : path) {
    auto tuple = value.as<ffi::Array<ffi::Any>>();
    if (!tuple || index < 0 || index >= static_cast<int64_t>(tuple->size())) {
      Fail(ErrorKind::kIndexError, "the output has no element ", index);
    }
    value = (*tuple)[index];
  }
  return value;
}

}  // namespace

ffi::Any VirtualMachine::GetOutput(const std::string& function, const std::vector<int64_t>& path) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = outputs_.find(function);
  if (it == outputs_.end()) {
    Fail(ErrorKind::kValueError, "No output saved for call of ", function,
         "; use `invoke_stateful` to call it first.");
  }
  return Element(it->second, path);
}

int64_t VirtualMachine::GetOutputArity(const std::string& function,
                                       const std::vector<int64_t>& path) {
  auto tuple = GetOutput(function, path).as<ffi::Array<ffi::Any>>();
  return tuple ? static_cast<int64_t>(tuple->size()) : -1;
}

void VirtualMachine::SaveFunction(const std::string& function, const std::string& saved_name,
                                  std::vector<ffi::Any> args, bool include_return) {
  const bytecode::FuncInfo& info = InfoOf(function);
  if (static_cast<int64_t>(args.size()) != info.num_args) {
    Fail(ErrorKind::kValueError, "function ", function, " takes ", info.num_args, " arguments, ",
         args.size(), " are given");
  }
  ffi::WeakObjectPtr<VirtualMachine> weak(
      ffi::detail::ObjectUnsafe::ObjectPtrFromUnowned<VirtualMachine>(this));
  std::string name = function;
  auto call = [weak, name, args = std::move(args), include_return](ffi::PackedArgs,
                                                                   ffi::Any* result) {
    ffi::ObjectPtr<VirtualMachine> vm = weak.lock();
    if (vm == nullptr)
      Fail(ErrorKind::kRuntimeError, "the VM that this function belongs to is gone");
    std::vector<ffi::AnyView> views(args.begin(), args.end());
    ffi::Any value;
    MakeClosure(vm.get(), vm->data().func_index.at(name))
        .CallPacked(views.data(), static_cast<int32_t>(views.size()), &value);
    if (include_return) *result = std::move(value);
  };
  std::lock_guard<std::mutex> lock(mutex_);
  saved_[saved_name] = ffi::Function::FromPacked(std::move(call));
}

}  // namespace relaxvm::vm
