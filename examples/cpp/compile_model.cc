// SPDX-License-Identifier: Apache-2.0
// Compiles a small model for every number of rows and writes it: compile_model MODEL.so.  The
// result runs with run_model, which needs no compiler.
#include <cstdio>
#include <exception>

#include "relaxvm/compile.h"
#include "relaxvm/runtime.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s MODEL.so\n", argv[0]);
    return 2;
  }
  try {
    tvm::ffi::Tensor one = relaxvm::Empty({4}, {kDLFloat, 32, 1});
    for (int i = 0; i < 4; ++i) static_cast<float*>(one.data_ptr())[i] = 1;

    relaxvm::FunctionBuilder f("main");
    relaxvm::Value x = f.Input("x", {"n", 4}, {kDLFloat, 32, 1});
    relaxvm::Value y = f.Call("multiply", {f.Call("add", {x, f.Constant(one)}), x});
    relaxvm::Module module = f.Finish(f.Call("nn.relu", {y}));
    std::printf("%s\n", module.AsText().c_str());

    relaxvm::ExportLibrary(relaxvm::Compile(module), argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
