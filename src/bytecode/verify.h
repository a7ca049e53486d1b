// SPDX-License-Identifier: Apache-2.0
// Proves that an executable can run without checks: framing, indices, registers, arities, jumps.
// What remains dynamic (types of values) is tested where it is used.
#pragma once

#include <string>

#include "bytecode/builtins.h"
#include "bytecode/executable.h"

namespace relaxvm::bytecode {

inline constexpr int64_t kMaxParams = 1 << 16;
inline constexpr int64_t kMaxRegisters = int64_t{1} << 24;

// Each rule that can refuse an executable; its name stands in the error.
#define RELAXVM_VERIFY_RULES(RULE)                                                              \
  RULE(kOffsets, "offsets")       /* offsets start at 0, ascend, and cover the words exactly */ \
  RULE(kEncoding, "encoding")     /* every instruction is whole and known */                    \
  RULE(kFunctionRange, "range")   /* instructions of a function exist and belong to it alone */ \
  RULE(kSignature, "signature")   /* counts of parameters, names and registers agree */         \
  RULE(kRegister, "register")     /* every register is within the register file */              \
  RULE(kConstant, "constant")     /* every constant exists */                                   \
  RULE(kFunction, "function")     /* every called or passed function exists */                  \
  RULE(kArgKind, "argument-kind") /* every argument has a known kind */                         \
  RULE(kArity, "arity") /* VM functions are called with as many arguments as they take */       \
  RULE(kJump, "jump")   /* jumps stay inside the function and go somewhere else */              \
  RULE(kFallThrough, "fall-through") /* no path runs past the end */                            \
  RULE(kMemoryScope, "memory-scope") /* memory scopes name tensors that exist */                \
  RULE(kBuiltin, "builtin") /* builtins get as many arguments, of the kinds, as they take */

enum class VerifyRule : uint8_t {
#define RULE(name, text) name,
  RELAXVM_VERIFY_RULES(RULE)
#undef RULE
};

// Throws ValueError "WHAT is invalid (RULE): ..." at the first violation.
void Verify(const ExecutableData& data, const std::string& what);

// The static part of a builtin's check, for a call that was resolved to it: arity, and the kinds of
// immediate, constant and function arguments.
void VerifyBuiltinCall(const ExecutableData& data, const BuiltinInfo& builtin,
                       const Instruction& insn, const std::string& what);

}  // namespace relaxvm::bytecode
