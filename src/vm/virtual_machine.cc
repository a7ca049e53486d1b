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
  runtime::CountCpusAgain();
  PlaceConstants();
  plain_ = MakeProgram(/*instrumented=*/false);
  current_ = plain_.get();
}

namespace {

// Which constants something else than `to_device` reads.
std::vector<bool> ReadInPlace(const bytecode::ExecutableData& data) {
  std::vector<bool> result(data.constants.size(), false);
  if (result.empty()) return result;
  int64_t to_device = -1;  // one name, one place in the function table
  for (size_t i = 0; i < data.func_table.size(); ++i) {
    const bytecode::FuncInfo& info = data.func_table[i];
    if (info.kind == bytecode::FuncKind::kVMTIRFunc) result.assign(result.size(), true);
    if (info.kind == bytecode::FuncKind::kPackedFunc &&
        bytecode::FindBuiltin(info.name) == bytecode::Builtin::kToDevice) {
      to_device = static_cast<int64_t>(i);
    }
  }
  for (const bytecode::FuncInfo& info : data.func_table) {
    if (info.kind != bytecode::FuncKind::kVMFunc) continue;
    for (int64_t i = info.start_instr; i < info.end_instr; ++i) {
      bytecode::Instruction insn = data.InstructionAt(i);
      if (insn.op != bytecode::Opcode::kCall) continue;
      for (size_t k = insn.func == to_device ? 1 : 0; k < insn.num_args(); ++k) {
        bytecode::Arg arg = insn.arg(k);
        if (arg.kind() == bytecode::ArgKind::kConstIdx)
          result[static_cast<size_t>(arg.value())] = true;
      }
    }
  }
  return result;
}

const ffi::Object* ObjectOf(const ffi::ObjectRef& ref) { return ref.get(); }

ffi::Tensor CopyIn(const std::shared_ptr<runtime::MemoryPool>& pool, const ffi::Tensor& tensor) {
  ffi::Tensor copy = runtime::EmptyTensor(pool, tensor.shape(), tensor.dtype());
  runtime::CopyTensor(runtime::Raw(tensor), runtime::Raw(copy));
  return copy;
}

}  // namespace

// Constants lie on the first device; those that are only copied elsewhere stay in the host's
// memory.
void VirtualMachine::PlaceConstants() {
  std::vector<bool> is_read = ReadInPlace(data());
  for (size_t i = 0; i < data().constants.size(); ++i) {
    ffi::Any constant = data().constants[i];
    if (auto tensor = constant.as<ffi::Tensor>()) {
      if (is_read[i] && !runtime::SameDevice(tensor->device(), pools_[0]->device()))
        constant = CopyIn(pools_[0], *tensor);
      constant_tensors_.insert(ObjectOf(*constant.as<ffi::Tensor>()));
    }
    constants_.push_back(std::move(constant));
  }
}

std::shared_ptr<runtime::MemoryPool> VirtualMachine::PoolOf(DLDevice device) const {
  for (const auto& pool : pools_) {
    if (runtime::SameDevice(pool->device(), device)) return pool;
  }
  return nullptr;
}

void VirtualMachine::Synchronize() const {
  for (const auto& pool : pools_) {
    DLDevice device = pool->device();
    runtime::GetDeviceApi(device)->Synchronize(device.device_id, nullptr);
  }
}

std::optional<ffi::Tensor> VirtualMachine::ConstantOn(const ffi::Tensor& tensor, DLDevice device) {
  std::shared_ptr<runtime::MemoryPool> pool = PoolOf(device);
  if (pool == nullptr || !constant_tensors_.count(ObjectOf(tensor))) return std::nullopt;
  std::lock_guard<std::mutex> lock(mutex_);
  auto [it, is_new] = constant_copies_.try_emplace(
      {ObjectOf(tensor), static_cast<int>(device.device_type), device.device_id}, tensor);
  if (is_new) {
    try {
      it->second = CopyIn(pool, tensor);
    } catch (...) {
      constant_copies_.erase(it);
      throw;
    }
  }
  return it->second;
}

std::unique_ptr<Program> VirtualMachine::MakeProgram(bool instrumented) {
  FunctionSources sources;
  sources.find_kernel = [this](const std::string& name) { return executable_->FindKernel(name); };
  sources.find_native = [this](const std::string& name) { return executable_->FindNative(name); };
  sources.find_import = [this](const std::string& name) { return executable_->FindImport(name); };
  sources.find_global = FindGlobalFunction;
  return LoadProgram(data(), constants_, this, sources, {.instrumented = instrumented});
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
    arg = CopyIn(pools_[0], *tensor);
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
