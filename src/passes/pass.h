// SPDX-License-Identifier: Apache-2.0
// A pass is a function from module to module; rows of pass_list.def.  It changes nothing else and
// keeps no state.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/module.h"
#include "tir/stmt.h"

namespace relaxvm::passes {

namespace ffi = tvm::ffi;
using ir::IRModule;

struct OutputTensor {
  ffi::Array<int64_t> shape;
  DLDataType dtype;
};
// A tensor program on constants.
struct Evaluation {
  tir::PrimFunc program;
  std::vector<ffi::Tensor> inputs;
  std::vector<OutputTensor> outputs;
};
// The outputs of each, compiled together: supplied by pipeline/, which can compile and run.
using Evaluate =
    std::function<std::vector<std::vector<ffi::Tensor>>(const std::vector<Evaluation>& work)>;

// How the gradient of a tensor program is computed: by another one, on these arguments.
struct ProgramGradient {
  tir::PrimFunc program;
  ffi::Array<ir::Expr> args;
  ir::Type result;
  ffi::Array<ir::Expr> sizes;  // values of the program's scalar parameters
};
// The gradient that the user gave a name, of a call with these arguments; `grad`: the gradient of
// its result, a tuple in line when there are several.
using FindProgramGradient = std::function<ProgramGradient(
    const ffi::String& name, const ffi::Map<ffi::String, ffi::Any>& options, const ir::Expr& grad,
    const ffi::Array<ir::Expr>& args)>;

struct PassContext {
  ffi::Map<ffi::String, ffi::Any> options;  // of this pass, complete: the row's defaults filled in
  ffi::Map<ffi::String, ffi::Any> config;   // of the whole compilation: "relax.FuseOps.max_depth"
  std::string target = "llvm";
  Evaluate evaluate;                     // may be empty: a pass that needs it then changes nothing
  FindProgramGradient program_gradient;  // may be empty: then there are none
  int num_threads = 1;

  template <typename T>
  T Option(const char* name) const {
    return options[name].template cast<T>();
  }
};

using PassFn = IRModule (*)(IRModule mod, const PassContext& context);

// PASS(Name, options, doc): options as "name: type = default, ..." (a Python signature), "" for
// none.
#define PASS(name, options, doc) IRModule name(IRModule mod, const PassContext& context);
#include "passes/pass_list.def"
#undef PASS

}  // namespace relaxvm::passes
