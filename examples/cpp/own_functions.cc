// SPDX-License-Identifier: Apache-2.0
// Functions of one's own that a program of the virtual machine calls: a kernel that writes into a
// tensor it is given, a function that returns a value, and one that takes the machine first, as
// builtins do.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <cstdio>
#include <exception>

#include "relaxvm/exec_builder.h"
#include "relaxvm/runtime.h"

namespace {

using tvm::ffi::Function;
using tvm::ffi::TensorView;

// out[i] = scale * x[i]
void Scale(TensorView x, double scale, TensorView out) {
  const auto* from = static_cast<const float*>(x.data_ptr());
  auto* to = static_cast<float*>(out.data_ptr());
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = static_cast<float>(scale) * from[i];
}

double Sum(TensorView x) {
  double sum = 0;
  for (int64_t i = 0; i < x.numel(); ++i) sum += static_cast<const float*>(x.data_ptr())[i];
  return sum;
}

// The machine is a module, whose functions are those of the executable.
bool IsMachine(tvm::ffi::Module machine) { return machine->GetFunction("main").has_value(); }

// main(x, out) -> (sum of out, whether the third function saw a machine)
relaxvm::Executable Program() {
  relaxvm::ExecBuilder b;
  b.BeginFunction("main", 2, {"x", "out"});
  b.EmitCall("example.scale", {b.R(0), b.Constant(2.5), b.R(1)});
  b.EmitCall("example.sum", {b.R(1)}, b.R(2));
  b.EmitCall("example.is_machine", {b.VM()}, b.R(3));
  b.EmitCall("vm.builtin.make_tuple", {b.R(2), b.R(3)}, b.R(4));
  b.EmitRet(b.R(4));
  b.EndFunction();
  return b.Get();
}

}  // namespace

int main() {
  try {
    Function::SetGlobal("example.scale", Function::FromTyped(Scale));
    Function::SetGlobal("example.sum", Function::FromTyped(Sum));
    Function::SetGlobal("example.is_machine", Function::FromTyped(IsMachine));
    relaxvm::Executable executable = Program();
    std::printf("%s", executable.AsText().c_str());

    relaxvm::VirtualMachine vm(executable);
    tvm::ffi::Tensor x = relaxvm::Empty({3}, {kDLFloat, 32, 1}),
                     out = relaxvm::Empty({3}, x.dtype());
    for (int i = 0; i < 3; ++i) static_cast<float*>(x.data_ptr())[i] = static_cast<float>(i + 1);
    auto result = vm["main"](x, out).cast<tvm::ffi::Array<tvm::ffi::Any>>();
    std::printf("sum %g, machine %d\n", result[0].cast<double>(), result[1].cast<bool>());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
