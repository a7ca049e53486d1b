// SPDX-License-Identifier: Apache-2.0
// Small executables that between them use everything: branches, loops, closures, shapes, storage,
// tuples, data types.
#pragma once

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/string.h>

#include <cstdlib>
#include <vector>

#include "bytecode/builder.h"
#include "support/dtype.h"

namespace relaxvm::testing {

struct MallocAlloc {
  void AllocData(DLTensor* tensor) {
    tensor->data = std::calloc(1, tvm::ffi::GetDataSize(*tensor) + 1);
  }
  void FreeData(DLTensor* tensor) { std::free(tensor->data); }
};

inline tvm::ffi::Tensor Zeros(std::vector<int64_t> shape, DLDataType dtype = Float(32)) {
  return tvm::ffi::Tensor::FromNDAlloc(MallocAlloc(), {shape.data(), shape.size()}, dtype,
                                       DLDevice{kDLCPU, 0});
}

// Writes 1 into a register and gives it.
inline bytecode::Arg TrueIn(bytecode::ExecBuilder* b, int64_t reg) {
  b->EmitCall(bytecode::Builtin::kCopy, {bytecode::Arg::Immediate(1)}, reg);
  return bytecode::Arg::Register(reg);
}

// Each has functions f0, f1, ... without parameters, or with one that takes anything.
inline std::vector<bytecode::ExecBuilder> SamplePrograms() {
  namespace ffi = tvm::ffi;
  using bytecode::Arg;
  using bytecode::Builtin;
  using bytecode::ExecBuilder;
  auto r = [](int64_t i) { return Arg::Register(i); };
  auto imm = [](int64_t i) { return Arg::Immediate(i); };
  std::vector<ExecBuilder> programs;
  {  // branches and a counted loop through the heap
    ExecBuilder b;
    b.BeginFunction("f0", 1, {"x"});
    b.EmitCall(Builtin::kAllocShapeHeap, {Arg::VM(), imm(4)}, 1);
    b.EmitCall(Builtin::kMatchPrimValue,
               {imm(3), r(1), imm(1), imm(2), b.ConvertConstant(ffi::String("where"))},
               bytecode::kVoidRegister);
    b.EmitCall(Builtin::kMakePrimValue, {r(1), imm(1), imm(2)}, 2);
    b.EmitCall(Builtin::kReadIfCond, {r(2)}, 3);
    b.EmitIf(r(3), 3);
    b.EmitCall(Builtin::kCopy, {r(0)}, 4);
    b.EmitGoto(2);
    b.EmitCall(Builtin::kNullValue, {}, 4);
    b.EmitRet(r(4));
    b.EndFunction("f0");
    programs.push_back(b);
  }
  {  // shapes, storage, tensors, views
    ExecBuilder b;
    b.BeginFunction("f0", 0);
    Arg f32 = b.ConvertConstant(Float(32)), scope = b.ConvertConstant(ffi::String("global"));
    b.EmitCall(Builtin::kAllocStorage,
               {Arg::VM(), b.ConvertConstant(ffi::Shape({96})), imm(0), f32, scope}, 0);
    b.EmitCall(Builtin::kAllocTensor, {r(0), imm(48), b.ConvertConstant(ffi::Shape({3, 4})), f32},
               1);
    b.EmitCall(Builtin::kNullValue, {}, 0);
    b.EmitCall(Builtin::kReshape, {r(1), b.ConvertConstant(ffi::Shape({2, 6}))}, 2);
    b.EmitCall(Builtin::kShapeOf, {r(2)}, 3);
    b.EmitCall(Builtin::kAllocShapeHeap, {Arg::VM(), imm(2)}, 4);
    b.EmitCall(
        Builtin::kMatchShape,
        {r(3), r(4), imm(2), imm(1), imm(0), imm(1), imm(1), b.ConvertConstant(ffi::String("w"))},
        bytecode::kVoidRegister);
    b.EmitCall(Builtin::kMakeShape, {r(4), imm(3), imm(1), imm(1), imm(0), imm(5), imm(1), imm(0)},
               5);
    b.EmitRet(r(5));
    b.EndFunction("f0");
    programs.push_back(b);
  }
  {  // closures and calls
    ExecBuilder b;
    b.BeginFunction("f1", 2);
    b.EmitCall(Builtin::kMakeTuple, {r(0), r(1)}, 2);
    b.EmitRet(r(2));
    b.EndFunction("f1");
    b.BeginFunction("f0", 1);
    b.EmitCall(Builtin::kMakeClosure, {b.GetFunction("f1"), r(0)}, 1);
    b.EmitCall(Builtin::kInvokeClosure, {Arg::VM(), r(1), imm(4)}, 2);
    b.EmitCall(Builtin::kTupleGetItem, {r(2), imm(1)}, 3);
    b.EmitCall("f1", {r(3), r(2)}, 4);
    b.EmitRet(r(4));
    b.EndFunction("f0");
    programs.push_back(b);
  }
  {  // constants of every kind, data types, a backward jump that ends
    ExecBuilder b;
    b.BeginFunction("f0", 0);
    b.EmitCall(Builtin::kAllocADT,
               {imm(2), b.ConvertConstant(1.5), b.ConvertConstant(ffi::Any(int64_t{1} << 60)),
                b.ConvertConstant(Zeros({2, 3})), b.ConvertConstant(Zeros({0, 3}, Int(64)))},
               0);
    b.EmitCall(Builtin::kGetTag, {r(0)}, 1);
    b.EmitGoto(3);
    b.EmitCall(Builtin::kGetField, {r(0), imm(2)}, 2);
    b.EmitRet(r(2));
    b.EmitIf(r(1), 2);
    b.EmitGoto(-3);
    b.EmitRet(r(0));
    b.EndFunction("f0");
    programs.push_back(b);
  }
  {  // a loop written as a tail call behind copies, kills and jumps; functions as values
    ExecBuilder b;
    b.BeginFunction("f1", 2);
    b.EmitCall(Builtin::kReadIfCond, {r(0)}, 2);
    b.EmitIf(r(2), 5);
    b.EmitCall(Builtin::kGetField, {r(0), imm(0)}, 3);
    b.EmitCall("f1", {r(3), r(1)}, 4);
    b.EmitCall(Builtin::kNullValue, {}, 3);
    b.EmitGoto(2);
    b.EmitCall(Builtin::kCopy, {r(1)}, 4);
    b.EmitCall(Builtin::kCopy, {r(4)}, 5);
    b.EmitRet(r(5));
    b.EndFunction("f1");
    b.BeginFunction("f0", 1, {"x"});
    b.EmitCall("f1", {imm(0), r(0)}, 1);
    b.EmitCall(Builtin::kMakeTuple, {b.GetFunction("f1"), r(1), Arg::Void()}, 2);
    b.EmitCall(Builtin::kTupleGetItem, {r(2), imm(0)}, 3);
    b.EmitCall(Builtin::kInvokeClosure, {Arg::VM(), r(3), imm(0), r(1)}, 4);
    b.EmitRet(r(4));
    b.EndFunction("f0");
    programs.push_back(b);
  }
  {  // checks of arguments, and constants with a memory scope
    ExecBuilder b;
    b.BeginFunction("f0", 1, {"x"});
    Arg where = b.ConvertConstant(ffi::String("parameter 'x'")), f32 = b.ConvertConstant(Float(32)),
        weight = b.ConvertConstant(Zeros({4, 4}));
    b.SetMemoryScope(weight, "global.texture");
    b.EmitCall(Builtin::kCheckTensorInfo, {r(0), imm(2), f32, where}, bytecode::kVoidRegister);
    b.EmitCall(Builtin::kMakeTuple, {weight, r(0), b.ConvertConstant(ffi::Shape({2, 8}))}, 1);
    b.EmitCall(Builtin::kCheckTupleInfo, {r(1), imm(3), where}, bytecode::kVoidRegister);
    b.EmitCall(Builtin::kTupleGetItem, {r(1), imm(0)}, 2);
    b.EmitCall(Builtin::kReshape, {r(2), b.ConvertConstant(ffi::Shape({2, 8}))}, 3);
    b.EmitCall(Builtin::kTupleResetItem, {r(1), imm(0)}, bytecode::kVoidRegister);
    b.EmitRet(r(3));
    b.EndFunction("f0");
    programs.push_back(b);
  }
  {  // results whose size depends on data, an attention cache, sampling
    ExecBuilder b;
    b.BeginFunction("f0", 1, {"x"});
    b.EmitCall(Builtin::kNonzero, {r(0)}, 1);
    Arg rows = b.ConvertConstant(Zeros({2, 3}));
    b.EmitCall(Builtin::kKVCacheCreate, {rows, b.ConvertConstant(ffi::Shape({4, 3})), imm(1)}, 2);
    b.EmitCall(Builtin::kKVCacheAppend, {r(2), r(0)}, 3);
    b.EmitCall(Builtin::kKVCacheView, {r(3)}, 4);
    b.EmitCall(Builtin::kUnique, {r(4), imm(1), imm(0), imm(1), imm(0)}, 5);
    b.EmitCall(Builtin::kMakeTuple, {r(1), r(4), r(5)}, 6);
    b.EmitRet(r(6));
    b.EndFunction("f0");
    programs.push_back(b);
  }
  {  // many parameters and registers, a diamond, calls with immediates
    ExecBuilder b;
    b.BeginFunction("f2", 4, {"a", "b", "c", "d"});
    b.EmitCall(Builtin::kMakeTuple, {r(0), r(1), r(2), r(3)}, 4);
    for (int64_t i = 5; i < 12; ++i) b.EmitCall(Builtin::kMakeTuple, {r(i - 1), r(0)}, i);
    b.EmitRet(r(11));
    b.EndFunction("f2");
    b.BeginFunction("f0", 1, {"x"});
    b.EmitIf(TrueIn(&b, 1), 3);
    b.EmitCall("f2", {r(0), imm(1), imm(-2), b.ConvertConstant(2.5)}, 2);
    b.EmitGoto(3);
    b.EmitCall("f2", {imm(7), r(0), r(0), Arg::Void()}, 2);
    b.EmitGoto(1);
    b.EmitCall(Builtin::kTupleGetItem, {r(2), imm(0)}, 3);
    b.EmitRet(r(3));
    b.EndFunction("f0");
    programs.push_back(b);
  }
  return programs;
}

}  // namespace relaxvm::testing
