// SPDX-License-Identifier: Apache-2.0
// Instructions as TVM's Relax VM encodes them: argument words, opcodes, and one decoder that the
// verifier, the disassembler and the loader share.
#pragma once

#include <cstdint>
#include <span>

namespace relaxvm::bytecode {

using Word = int64_t;

enum class Opcode : int64_t {
#define INSN(name, opcode, words, meaning) k##name = opcode,
#include "bytecode/isa.def"
#undef INSN
};

enum class ArgKind : int { kRegister = 0, kImmediate = 1, kConstIdx = 2, kFuncIdx = 3 };

inline constexpr int kValueBits = 56;
inline constexpr int64_t kMaxValue = (int64_t{1} << (kValueBits - 1)) - 1;
inline constexpr int64_t kMinValue = -kMaxValue;
// Registers from here on are special.
inline constexpr int64_t kBeginSpecialRegister = int64_t{1} << 54;
inline constexpr int64_t kVoidRegister = kBeginSpecialRegister;  // reads None; a write is discarded
inline constexpr int64_t kVMRegister = kBeginSpecialRegister + 1;  // the context that builtins take

// One argument word.
class Arg {
 public:
  constexpr Arg() = default;
  constexpr explicit Arg(Word word) : word_(word) {}
  constexpr Arg(ArgKind kind, int64_t value)
      : word_(
            static_cast<Word>((static_cast<uint64_t>(kind) << kValueBits) |
                              (static_cast<uint64_t>(value) & ((uint64_t{1} << kValueBits) - 1)))) {
  }
  static constexpr Arg Register(int64_t index) { return {ArgKind::kRegister, index}; }
  // `value` must be within kMinValue..kMaxValue.
  static constexpr Arg Immediate(int64_t value) { return {ArgKind::kImmediate, value}; }
  static constexpr Arg Const(int64_t index) { return {ArgKind::kConstIdx, index}; }
  static constexpr Arg Func(int64_t index) { return {ArgKind::kFuncIdx, index}; }
  static constexpr Arg Void() { return Register(kVoidRegister); }
  static constexpr Arg VM() { return Register(kVMRegister); }
  static constexpr bool FitsImmediate(int64_t value) {
    return value >= kMinValue && value <= kMaxValue;
  }

  constexpr Word word() const { return word_; }
  constexpr ArgKind kind() const {
    return static_cast<ArgKind>((static_cast<uint64_t>(word_) >> kValueBits) & 0xff);
  }
  constexpr int64_t value() const {
    return static_cast<int64_t>(static_cast<uint64_t>(word_) << (64 - kValueBits)) >>
           (64 - kValueBits);
  }
  constexpr bool operator==(const Arg&) const = default;

 private:
  Word word_ = 0;
};

// A view of one instruction in the word stream; only the fields of its opcode are set.
struct Instruction {
  Opcode op = Opcode::kRet;
  int64_t reg = 0;     // Call: destination.  Ret: result.  If: condition.
  int64_t func = 0;    // Call
  int64_t offset = 0;  // Goto: offset.  If: false_offset.
  std::span<const Word> arg_words;

  size_t num_args() const { return arg_words.size(); }
  Arg arg(size_t i) const { return Arg(arg_words[i]); }
};

// Decodes the instruction at the start of `words`.  False when the words do not hold a whole, known
// instruction.
inline bool Decode(std::span<const Word> words, Instruction* result) {
  if (words.size() < 2) return false;
  switch (static_cast<Opcode>(words[0])) {
    case Opcode::kCall:
      if (words.size() < 4 || words[3] < 0 || static_cast<uint64_t>(words[3]) > words.size() - 4)
        return false;
      *result = {Opcode::kCall, words[1], words[2], 0,
                 words.subspan(4, static_cast<size_t>(words[3]))};
      return true;
    case Opcode::kRet: *result = {Opcode::kRet, words[1], 0, 0, {}}; return true;
    case Opcode::kGoto: *result = {Opcode::kGoto, 0, 0, words[1], {}}; return true;
    case Opcode::kIf:
      if (words.size() < 3) return false;
      *result = {Opcode::kIf, words[1], 0, words[2], {}};
      return true;
  }
  return false;
}

// How many words the instruction takes.
inline size_t NumWords(const Instruction& insn) {
  switch (insn.op) {
#define INSN(name, opcode, words, meaning) \
  case Opcode::k##name: return words + insn.arg_words.size();
#include "bytecode/isa.def"
#undef INSN
  }
  return 0;
}

}  // namespace relaxvm::bytecode
