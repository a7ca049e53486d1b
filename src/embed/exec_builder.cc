// SPDX-License-Identifier: Apache-2.0
// ExecBuilder for Python.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <cstring>

#include "bytecode/builder.h"
#include "runtime/tensor.h"
#include "support/dtype.h"
#include "support/error.h"
#include "support/host_tensor.h"
#include "vm/executable_module.h"

namespace relaxvm::embed {
namespace {

namespace ffi = tvm::ffi;
using bytecode::Arg;
using bytecode::ArgKind;

class ExecBuilderObj : public ffi::Object {
 public:
  bytecode::ExecBuilder builder;
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.ExecBuilder", ExecBuilderObj, ffi::Object);
};

class ExecBuilder : public ffi::ObjectRef {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(ExecBuilder, ffi::ObjectRef, ExecBuilderObj);
};

bytecode::FuncKind Kind(int64_t kind) {
  if (kind < 0 || kind > 2) Fail(ErrorKind::kValueError, "unknown kind of function ", kind);
  return static_cast<bytecode::FuncKind>(kind);
}

void Function(ExecBuilder self, ffi::String name, int64_t num_inputs,
              ffi::Optional<ffi::Array<ffi::String>> param_names, int64_t kind,
              int64_t register_file_size) {
  std::vector<std::string> names;
  if (param_names) {
    for (const ffi::String& param : *param_names) names.emplace_back(param);
  }
  self->builder.BeginFunction(std::string(name), num_inputs, std::move(names), Kind(kind),
                              register_file_size);
}

void EmitCall(ExecBuilder self, ffi::String name, ffi::Array<int64_t> args, int64_t dst) {
  std::vector<Arg> words;
  for (int64_t word : args) words.emplace_back(word);
  self->builder.EmitCall(std::string(name), words, dst);
}

// Registers as Python counts them: void and vm have their own words.
int64_t Register(int64_t index) {
  if (index < 0 || index > bytecode::kVMRegister)
    Fail(ErrorKind::kValueError, "register ", index, " does not exist");
  return Arg::Register(index).word();
}

int64_t Immediate(int64_t value) {
  if (!Arg::FitsImmediate(value))
    Fail(ErrorKind::kValueError, "immediate ", value, " does not fit into 56 bits");
  return Arg::Immediate(value).word();
}

// A tensor from its elements in row-major order.
int64_t AddTensor(ExecBuilder self, DLDataType dtype, ffi::Shape shape, ffi::Bytes elements) {
  runtime::TensorBytes({shape.data(), shape.size()}, dtype);  // refuses what is no shape
  ffi::Tensor tensor = NewHostTensor({shape.begin(), shape.end()}, dtype);
  auto num_bytes = static_cast<size_t>(SizeInBytes(dtype, tensor.numel()));
  if (elements.size() != num_bytes) {
    Fail(ErrorKind::kValueError, "a constant tensor of this shape and dtype has ", num_bytes,
         " bytes, ", elements.size(), " are given");
  }
  if (num_bytes > 0) std::memcpy(tensor.data_ptr(), elements.data(), num_bytes);
  return self->builder.AddConstant(tensor).word();
}

ffi::Module Get(ExecBuilder self) { return vm::LinkExecutable(self->builder.Get(), {}); }

TVM_FFI_STATIC_INIT_BLOCK() {
  namespace refl = tvm::ffi::reflection;
  ExecBuilderObj::RuntimeTypeIndex();
  refl::ObjectDef<ExecBuilderObj>();
  refl::GlobalDef()
      .def("relaxvm.exec_builder.create",
           [] { return ExecBuilder(ffi::make_object<ExecBuilderObj>()); })
      .def("relaxvm.exec_builder.declare_function",
           [](ExecBuilder self, ffi::String name, int64_t kind) {
             self->builder.DeclareFunction(std::string(name), Kind(kind));
           })
      .def("relaxvm.exec_builder.function", Function)
      .def("relaxvm.exec_builder.end_function",
           [](ExecBuilder self, ffi::String name) { self->builder.EndFunction(std::string(name)); })
      .def("relaxvm.exec_builder.convert_constant",
           [](ExecBuilder self, ffi::Any value) {
             return self->builder.ConvertConstant(value).word();
           })
      .def("relaxvm.exec_builder.add_constant",
           [](ExecBuilder self, ffi::Any value) { return self->builder.AddConstant(value).word(); })
      .def("relaxvm.exec_builder.add_tensor", AddTensor)
      .def("relaxvm.exec_builder.add_text",
           [](ExecBuilder self, ffi::Bytes text) {
             return self->builder.AddConstant(ffi::String(text.data(), text.size())).word();
           })
      .def("relaxvm.exec_builder.set_memory_scope",
           [](ExecBuilder self, int64_t constant, ffi::String scope) {
             self->builder.SetMemoryScope(Arg(constant), std::string(scope));
           })
      .def("relaxvm.exec_builder.f",
           [](ExecBuilder self, ffi::String name) {
             return self->builder.GetFunction(std::string(name)).word();
           })
      .def("relaxvm.exec_builder.r", Register)
      .def("relaxvm.exec_builder.imm", Immediate)
      .def("relaxvm.exec_builder.c", [](int64_t index) { return Arg::Const(index).word(); })
      .def("relaxvm.exec_builder.emit_call", EmitCall)
      .def("relaxvm.exec_builder.emit_ret",
           [](ExecBuilder self, int64_t reg) { self->builder.EmitRet(Arg(reg)); })
      .def("relaxvm.exec_builder.emit_goto",
           [](ExecBuilder self, int64_t offset) { self->builder.EmitGoto(offset); })
      .def("relaxvm.exec_builder.emit_if",
           [](ExecBuilder self, int64_t cond, int64_t offset) {
             self->builder.EmitIf(Arg(cond), offset);
           })
      .def("relaxvm.exec_builder.get", Get);
}

}  // namespace
}  // namespace relaxvm::embed
