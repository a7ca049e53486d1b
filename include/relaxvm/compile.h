// SPDX-License-Identifier: Apache-2.0
// Compiling from C++.  Part of librelaxvm, which holds the compiler; link relaxvm::compiler.
//
//   relaxvm::FunctionBuilder f("main");
//   auto x = f.Input("x", {"n", 4}, {kDLFloat, 32, 1});
//   relaxvm::Module module = f.Finish(f.Call("nn.relu", {x}));
//   relaxvm::Executable executable = relaxvm::Compile(module);
//   relaxvm::ExportLibrary(executable, "model.so");
#pragma once

#include <tvm/ffi/container/map.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/object.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "relaxvm/executable.h"

namespace relaxvm {

// Relax functions and tensor programs, at any stage.  A reference to an immutable object.
class RELAXVM_PUBLIC Module {
 public:
  // Takes an IRModule that another part of the program made, for example Python.
  explicit Module(tvm::ffi::ObjectRef module);

  // As a script.
  std::string AsText() const;
  const tvm::ffi::ObjectRef& object() const { return module_; }

 private:
  tvm::ffi::ObjectRef module_;
};

// A size: a number, or the name of a symbolic variable, the same in all inputs of a function.
struct Dim {
  Dim(int64_t value) : value(value) {}              // NOLINT: {"n", 4} reads as a shape
  Dim(int value) : value(value) {}                  // NOLINT
  Dim(const char* name) : name(name) {}             // NOLINT
  Dim(std::string name) : name(std::move(name)) {}  // NOLINT
  int64_t value = -1;
  std::string name;
};

// A value inside a function under construction.
class RELAXVM_PUBLIC Value {
 public:
  explicit Value(tvm::ffi::ObjectRef expr) : expr_(std::move(expr)) {}
  const tvm::ffi::ObjectRef& expr() const { return expr_; }

 private:
  tvm::ffi::ObjectRef expr_;
};

// Writes one Relax function from operator calls.  Types and shapes are inferred; mistakes throw
// tvm::ffi::Error that says what an operator expects.
class RELAXVM_PUBLIC FunctionBuilder {
 public:
  explicit FunctionBuilder(const std::string& name);

  Value Input(const std::string& name, const std::vector<Dim>& shape, DLDataType dtype);
  Value Constant(const tvm::ffi::Tensor& values);
  // An operator by the name it has in scripts, without "R.": "add", "nn.softmax".
  Value Call(const std::string& op, const std::vector<Value>& args,
             const tvm::ffi::Map<tvm::ffi::String, tvm::ffi::Any>& attrs = {});
  Value Tuple(const std::vector<Value>& fields);
  // The module with this function, which returns `result`.  The builder is used up.
  Module Finish(const Value& result);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

struct CompileOptions {
  std::string target = "llvm";         // this machine's CPU; "llvm -mcpu=..." names another
  std::string exec_mode = "bytecode";  // or "compiled"
  int num_threads = 0;                 // compile jobs at once; 0: as many as the process may use
};

// Throws tvm::ffi::Error that says where the program is wrong.
RELAXVM_PUBLIC Executable Compile(const Module& module, const CompileOptions& options = {});

struct ExportOptions {
  bool for_tvm = false;  // refuse, by name, what TVM's virtual machine cannot run
};

// Writes a shared library with bytecode, constants and kernels; needs a linker on the machine.
RELAXVM_PUBLIC void ExportLibrary(const Executable& executable, const std::string& path,
                                  const ExportOptions& options = {});

}  // namespace relaxvm
