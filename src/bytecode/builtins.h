// SPDX-License-Identifier: Apache-2.0
// The table of builtins: what the compiler emits and the VM binds by index.  Data only;
// vm/builtins/ has the code.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace relaxvm::bytecode {

enum class Builtin : uint8_t {
#define BUILTIN(name, user_name, signature, effect, meaning) k##name,
#include "bytecode/builtin_list.def"
#undef BUILTIN
};

enum class Effect : uint8_t { kPure, kReads, kWrites, kAlloc };

enum class ParamKind : uint8_t {
  kCtx,
  kInt,
  kNumber,
  kBool,
  kStr,
  kDType,
  kShape,
  kTensor,
  kStorage,
  kArray,
  kFunc,
  kObject,
  kAny
};

struct BuiltinParam {
  std::string name;
  ParamKind kind;
};

struct BuiltinInfo {
  Builtin id;
  std::string_view name;  // the users' name, as in TVM
  std::string_view signature;
  Effect effect;
  std::string_view meaning;
  std::vector<BuiltinParam> params;  // without the rest parameter
  int min_args = 0;
  int max_args = 0;                  // -1: any number
  bool takes_ctx = false;            // the first parameter is the VM
  ParamKind rest = ParamKind::kAny;  // kind of the arguments after `params`, when max_args is -1
  // Kind of argument `i`.
  ParamKind KindOf(size_t i) const { return i < params.size() ? params[i].kind : rest; }
};

std::span<const BuiltinInfo> AllBuiltins();
const BuiltinInfo& GetBuiltin(Builtin id);
std::optional<Builtin> FindBuiltin(std::string_view name);

// The code in each (code, value) pair of match_prim_value and match_shape.
enum class MatchCode : int64_t {
  kAssertEqualToImm = 0,
  kStoreToHeap = 1,
  kNoOp = 2,
  kAssertEqualToLoad = 3
};
// The code in each (code, value) pair of make_prim_value and make_shape.
enum class MakeCode : int64_t { kUseImm = 0, kLoadShape = 1 };

}  // namespace relaxvm::bytecode
