// SPDX-License-Identifier: Apache-2.0
// Every rule of the verifier refuses a program that breaks it, and only that one.
#include "bytecode/verify.h"

#include <gtest/gtest.h>

#include <functional>

#include "programs.h"

namespace relaxvm::bytecode {
namespace {

// f(x): r1 = g(x, 1, c[0]); if r1 goto...; ret
ExecutableData Sample() {
  ExecBuilder b;
  b.BeginFunction("g", 2);
  b.EmitRet(Arg::Register(1));
  b.EndFunction("g");
  b.BeginFunction("f", 1, {"x"});
  b.EmitCall("g", {Arg::Register(0), b.ConvertConstant(tvm::ffi::String("text"))}, 1);  // 1
  b.EmitIf(Arg::Register(1), 2);                                                        // 2
  b.EmitGoto(1);                                                                        // 3
  b.EmitCall("vm.builtin.copy", {b.GetFunction("g")}, 2);                               // 4
  b.EmitRet(Arg::Register(2));                                                          // 5
  b.EndFunction("f");
  return b.Get();
}

std::string Error(const ExecutableData& data) {
  try {
    Verify(data, "it");
  } catch (const tvm::ffi::Error& error) {
    return error.message();
  }
  return "";
}

struct Case {
  const char* rule;
  std::function<void(ExecutableData*)> damage;
};

Word& At(ExecutableData* data, int64_t instruction, int64_t word) {
  return data->instr_data[static_cast<size_t>(data->instr_offset[static_cast<size_t>(instruction)] +
                                              word)];
}
FuncInfo& F(ExecutableData* data, const char* name) {
  return data->func_table[static_cast<size_t>(data->func_index.at(name))];
}

const Case kCases[] = {
    {"offsets", [](ExecutableData* d) { d->instr_offset[2] += 1; }},
    {"offsets", [](ExecutableData* d) { d->instr_offset[0] = -1; }},
    {"offsets", [](ExecutableData* d) { d->instr_data.push_back(2); }},
    {"offsets", [](ExecutableData* d) { d->instr_offset.push_back(1000); }},
    {"encoding", [](ExecutableData* d) { At(d, 1, 0) = 9; }},
    {"encoding", [](ExecutableData* d) { At(d, 4, 3) = int64_t{1} << 60; }},
    {"encoding", [](ExecutableData* d) { At(d, 4, 3) = -1; }},
    {"range", [](ExecutableData* d) { F(d, "f").end_instr = 7; }},
    {"range", [](ExecutableData* d) { F(d, "f").start_instr = -1; }},
    {"range", [](ExecutableData* d) { F(d, "f").start_instr = 0; }},
    {"range", [](ExecutableData* d) { F(d, "f").end_instr = F(d, "f").start_instr; }},
    {"signature", [](ExecutableData* d) { F(d, "f").num_args = -2; }},
    {"signature", [](ExecutableData* d) { F(d, "f").num_args = int64_t{1} << 40; }},
    {"signature", [](ExecutableData* d) { F(d, "f").register_file_size = 0; }},
    {"signature", [](ExecutableData* d) { F(d, "f").register_file_size = int64_t{1} << 40; }},
    {"signature", [](ExecutableData* d) { F(d, "f").param_names.push_back("y"); }},
    {"register", [](ExecutableData* d) { At(d, 1, 1) = 3; }},
    {"register", [](ExecutableData* d) { At(d, 1, 1) = -1; }},
    {"register", [](ExecutableData* d) { At(d, 1, 1) = kVMRegister; }},
    {"register", [](ExecutableData* d) { At(d, 1, 4) = Arg::Register(3).word(); }},
    {"register", [](ExecutableData* d) { At(d, 1, 4) = Arg::Register(-4).word(); }},
    {"register", [](ExecutableData* d) { At(d, 5, 1) = 99; }},
    {"register", [](ExecutableData* d) { At(d, 5, 1) = kVMRegister; }},
    {"register", [](ExecutableData* d) { At(d, 2, 1) = 99; }},
    {"constant", [](ExecutableData* d) { At(d, 1, 5) = Arg::Const(1).word(); }},
    {"constant", [](ExecutableData* d) { At(d, 1, 5) = Arg::Const(-1).word(); }},
    {"function", [](ExecutableData* d) { At(d, 1, 2) = 17; }},
    {"function", [](ExecutableData* d) { At(d, 4, 4) = Arg::Func(17).word(); }},
    {"argument-kind", [](ExecutableData* d) { At(d, 1, 5) = int64_t{7} << 56; }},
    {"arity", [](ExecutableData* d) { At(d, 4, 2) = d->func_index.at("g"); }},
    {"jump", [](ExecutableData* d) { At(d, 3, 1) = 0; }},
    {"jump", [](ExecutableData* d) { At(d, 3, 1) = 100; }},
    {"jump", [](ExecutableData* d) { At(d, 3, 1) = -3; }},
    {"jump", [](ExecutableData* d) { At(d, 3, 1) = INT64_MIN; }},
    {"jump", [](ExecutableData* d) { At(d, 2, 2) = 1; }},
    {"jump", [](ExecutableData* d) { At(d, 2, 2) = INT64_MAX; }},
    {"fall-through", [](ExecutableData* d) { F(d, "f").end_instr = 5; }},
    {"memory-scope", [](ExecutableData* d) { d->memory_scopes[0] = "texture"; }},
    {"memory-scope", [](ExecutableData* d) { d->memory_scopes[5] = "global"; }},
};

TEST(Verify, AcceptsTheSampleAndAllPrograms) {
  EXPECT_EQ(Error(Sample()), "");
  for (const ExecBuilder& builder : testing::SamplePrograms()) EXPECT_EQ(Error(builder.Get()), "");
}

TEST(Verify, RefusesWhatBreaksARule) {
  int number = 0;
  for (const Case& test : kCases) {
    ExecutableData data = Sample();
    test.damage(&data);
    std::string expected = std::string("it is invalid (") + test.rule + ")";
    EXPECT_EQ(Error(data).substr(0, expected.size()), expected)
        << "case " << number << ": " << Error(data);
    ++number;
  }
}

TEST(Verify, BuiltinCallsNeedTheirArguments) {
  auto check = [](Builtin builtin, const std::vector<Arg>& args) {
    ExecBuilder b;
    Arg text = b.ConvertConstant(tvm::ffi::String("text"));
    (void)text;  // constant 0
    b.BeginFunction("f", 1);
    b.EmitCall(builtin, args, kVoidRegister);
    b.EmitRet(Arg::Void());
    b.EndFunction("f");
    ExecutableData data = b.Get();
    try {
      VerifyBuiltinCall(data, GetBuiltin(builtin), data.GetInstruction(0), "it");
    } catch (const tvm::ffi::Error& error) {
      return std::string(error.message()).substr(0, 23);
    }
    return std::string();
  };
  const std::string refused = "it is invalid (builtin)";
  EXPECT_EQ(check(Builtin::kCopy, {Arg::Register(0)}), "");
  EXPECT_EQ(check(Builtin::kCopy, {}), refused);
  EXPECT_EQ(check(Builtin::kCopy, {Arg::Void(), Arg::Void()}), refused);
  EXPECT_EQ(check(Builtin::kAllocShapeHeap, {Arg::VM(), Arg::Immediate(1)}), "");
  EXPECT_EQ(check(Builtin::kAllocShapeHeap, {Arg::Register(0), Arg::Immediate(1)}), refused);
  EXPECT_EQ(check(Builtin::kAllocShapeHeap, {Arg::VM(), Arg::Const(0)}), refused);
  EXPECT_EQ(check(Builtin::kShapeOf, {Arg::Immediate(3)}), refused);
  EXPECT_EQ(check(Builtin::kShapeOf, {Arg::VM()}), refused);
  EXPECT_EQ(check(Builtin::kMakeTuple, {}), "");
}

TEST(Builtins, SignaturesAreReadAsWritten) {
  const BuiltinInfo& alloc = GetBuiltin(Builtin::kAllocStorage);
  EXPECT_EQ(alloc.min_args, 4);
  EXPECT_EQ(alloc.max_args, 5);
  EXPECT_TRUE(alloc.takes_ctx);
  EXPECT_EQ(alloc.KindOf(1), ParamKind::kShape);
  EXPECT_EQ(GetBuiltin(Builtin::kMakeTuple).max_args, -1);
  EXPECT_EQ(FindBuiltin("vm.builtin.copy"), Builtin::kCopy);
  EXPECT_EQ(FindBuiltin("vm.builtin.no_such"), std::nullopt);
}

}  // namespace
}  // namespace relaxvm::bytecode
