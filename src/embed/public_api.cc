// SPDX-License-Identifier: Apache-2.0
// The classes of include/relaxvm/.
#include <tvm/ffi/string.h>

#include "bytecode/builder.h"
#include "bytecode/disassemble.h"
#include "bytecode/serialize.h"
#include "relaxvm/exec_builder.h"
#include "relaxvm/executable.h"
#include "relaxvm/runtime.h"
#include "runtime/tensor.h"
#include "support/error.h"
#include "vm/executable_module.h"
#include "vm/virtual_machine.h"

namespace relaxvm {
namespace ffi = tvm::ffi;

Executable::Executable(ffi::Module module) : module_(std::move(module)) {
  vm::ExecutableDataOf(module_);  // refuses what is none
}

Executable Executable::Load(const std::string& path, const LoadOptions& options) {
  return Executable(
      vm::LoadExecutable(path, {options.weights, options.kernels, options.verify_weights}));
}

void Executable::Save(const std::string& path, const std::string& weights) const {
  vm::SaveExecutable(module_, path, {weights, ""});
}

Executable Executable::FromBytes(const std::string& bytes) {
  return Executable(vm::LinkExecutable(bytecode::Deserialize(bytes, "the executable"), {}));
}

std::vector<std::string> Executable::FunctionNames() const {
  std::vector<std::string> names;
  for (const bytecode::FuncInfo& info : vm::ExecutableDataOf(module_).func_table) {
    if (info.kind != bytecode::FuncKind::kPackedFunc) names.push_back(info.name);
  }
  return names;
}

std::string Executable::AsText() const { return bytecode::AsText(vm::ExecutableDataOf(module_)); }
std::string Executable::Stats() const { return bytecode::Stats(vm::ExecutableDataOf(module_)); }
std::string Executable::ToBytes() const {
  return bytecode::Serialize(vm::ExecutableDataOf(module_)).Join();
}

void Executable::Import(const ffi::Module& module) {
  const_cast<ffi::ModuleObj*>(module_.operator->())->ImportModule(module);
}

struct ExecBuilder::State {
  bytecode::ExecBuilder builder;
  std::string open_function;
};

namespace {

std::vector<bytecode::Arg> ArgsOf(const std::vector<ExecBuilder::Operand>& operands) {
  std::vector<bytecode::Arg> args;
  for (ExecBuilder::Operand operand : operands) args.emplace_back(operand.word);
  return args;
}

}  // namespace

ExecBuilder::ExecBuilder() : state_(std::make_shared<State>()) {}

ExecBuilder::Operand ExecBuilder::R(int64_t index) {
  if (index < 0 || index >= bytecode::kBeginSpecialRegister)
    Fail(ErrorKind::kValueError, "register ", index, " does not exist");
  return {bytecode::Arg::Register(index).word()};
}

ExecBuilder::Operand ExecBuilder::Imm(int64_t value) {
  if (!bytecode::Arg::FitsImmediate(value))
    Fail(ErrorKind::kValueError, "immediate ", value, " does not fit into 56 bits");
  return {bytecode::Arg::Immediate(value).word()};
}

ExecBuilder::Operand ExecBuilder::Void() { return {bytecode::Arg::Void().word()}; }
ExecBuilder::Operand ExecBuilder::VM() { return {bytecode::Arg::VM().word()}; }

ExecBuilder::Operand ExecBuilder::F(const std::string& name) {
  return {state_->builder.GetFunction(name).word()};
}

ExecBuilder::Operand ExecBuilder::Constant(const ffi::Any& value) {
  return {state_->builder.ConvertConstant(value).word()};
}

void ExecBuilder::BeginFunction(const std::string& name, int64_t num_inputs,
                                const std::vector<std::string>& param_names) {
  if (num_inputs < 0)
    Fail(ErrorKind::kValueError, "function ", name, " has ", num_inputs, " inputs");
  state_->builder.BeginFunction(name, num_inputs, param_names);
  state_->open_function = name;
}

void ExecBuilder::EndFunction() { state_->builder.EndFunction(state_->open_function); }

void ExecBuilder::EmitCall(const std::string& name, const std::vector<Operand>& args, Operand dst) {
  bytecode::Arg reg(dst.word);
  if (reg.kind() != bytecode::ArgKind::kRegister)
    Fail(ErrorKind::kValueError, "the destination must be a register");
  state_->builder.EmitCall(name, ArgsOf(args), reg.value());
}

void ExecBuilder::EmitRet(Operand result) { state_->builder.EmitRet(bytecode::Arg(result.word)); }
void ExecBuilder::EmitGoto(int64_t offset) { state_->builder.EmitGoto(offset); }
void ExecBuilder::EmitIf(Operand cond, int64_t false_offset) {
  state_->builder.EmitIf(bytecode::Arg(cond.word), false_offset);
}

Executable ExecBuilder::Get() const {
  return Executable(vm::LinkExecutable(state_->builder.Get(), {}));
}

namespace {

vm::VirtualMachine* Machine(const ffi::Module& module) { return vm::VirtualMachine::From(module); }

}  // namespace

VirtualMachine::VirtualMachine(const Executable& executable, const VirtualMachineOptions& options)
    : module_(executable.module()) {
  std::vector<vm::DeviceConfig> devices;
  auto kind =
      options.pooled_memory ? runtime::AllocatorKind::kPooled : runtime::AllocatorKind::kNaive;
  for (DLDevice device : options.devices)
    devices.push_back({device, kind, options.memory_limit_bytes});
  if (devices.empty()) devices.push_back({DLDevice{kDLCPU, 0}, kind, options.memory_limit_bytes});
  auto machine = vm::VirtualMachine::Create(
      ffi::detail::ObjectUnsafe::ObjectPtrFromUnowned<vm::ExecutableModule>(
          vm::ExecutableModule::From(executable.module())),
      std::move(devices));
  if (options.num_threads > 0) machine->set_num_threads(options.num_threads);
  module_ = ffi::Module(ffi::ObjectPtr<ffi::ModuleObj>(machine));
}

ffi::Function VirtualMachine::operator[](const std::string& name) const {
  auto function = Machine(module_)->FindFunction(name);
  if (!function) Fail(ErrorKind::kValueError, "the executable has no function ", name);
  return function.value();
}

MemoryUse VirtualMachine::Memory(int64_t device) const {
  runtime::MemoryStats stats = Machine(module_)->pool(device)->Stats();
  return {stats.used_bytes, stats.peak_used_bytes, stats.reserved_bytes, stats.peak_reserved_bytes};
}

int64_t VirtualMachine::TrimMemory() {
  int64_t freed = 0;
  vm::VirtualMachine* machine = Machine(module_);
  for (size_t i = 0; i < machine->num_devices(); ++i)
    freed += machine->pool(static_cast<int64_t>(i))->Trim();
  return freed;
}

void VirtualMachine::SetNumThreads(int count) { Machine(module_)->set_num_threads(count); }

void VirtualMachine::SetTimeLimitMs(double milliseconds) {
  if (!(milliseconds >= 0 && milliseconds < 1e12))
    Fail(ErrorKind::kValueError, "a time limit must be 0 or more milliseconds");
  Machine(module_)->set_time_limit_ns(static_cast<int64_t>(milliseconds * 1e6));
}

ffi::Tensor Empty(const std::vector<int64_t>& shape, DLDataType dtype, DLDevice device) {
  auto pool = runtime::MemoryPool::Create(device, runtime::AllocatorKind::kNaive);
  return runtime::EmptyTensor(pool, {shape.data(), shape.size()}, dtype);
}

void Copy(const ffi::Tensor& from, const ffi::Tensor& to) {
  runtime::CopyTensor(runtime::Raw(from), runtime::Raw(to));
}

}  // namespace relaxvm
