// SPDX-License-Identifier: Apache-2.0
// What the entries of a kernel require of their arguments, as constants beside the code. An entry
// finds out in straight-line code whether anything is unusual; one function for all kernels of a
// set then reads the list to say whether that is an error, and which.
#pragma once

#include <llvm/ADT/STLFunctionalExtras.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <string>
#include <vector>

namespace relaxvm::codegen {

// Symbols of the shared functions; hidden, so they never leave the library.
inline constexpr const char* kReportSymbol =
    "__relaxvm_report";  // bool(ctx, list, tensors, values): sets the first error of the list, if
                         // any
inline constexpr const char* kCallPackedSymbol =
    "__relaxvm_call_packed";  // int(list, direct, args, num_args): a packed entry

// Bits that differ from what is usual, of all that was compared so far; then the way for any of
// them.
class Differences {
 public:
  explicit Differences(llvm::IRBuilder<>& b) : b_(b) {}

  // Words of 64 bits: one, two or four.
  void AddBits(llvm::Value* bits);
  // Goes on in a new block where there are none; `other` ends the block where there are, and may
  // lead to the new one, too.
  void WhereAny(llvm::function_ref<void(llvm::BasicBlock* none)> other);

 private:
  llvm::IRBuilder<>& b_;
  llvm::Value *words_ = nullptr, *pairs_ = nullptr, *fours_ = nullptr;
};

// One check of a direct entry.  24 bytes of the list:
// { int32 kind, tensor, place, text; int64 expected }.
struct Check {
  enum Kind : int32_t {
    kField,    // the 32-bit field of the tensor at byte `place`
    kDtype,    // the same; another one is a TypeError
    kSize,     // dimension `place`
    kValue,    // dimension `place` is values[expected]
    kCompact,  // row-major without gaps
  };
  Kind kind;
  int32_t tensor;
  int32_t place;
  int64_t expected;
  std::string message;
};

// { int32 number of checks, 0 }, the checks, then the texts; `text` counts from the beginning.
llvm::Constant* MakeCheckList(llvm::Module* module, const std::vector<Check>& checks);

// What a packed entry hands on.  12 bytes of the list: { int32 letter of Signature::params, text
// of the type error, text of the error about null }.
struct PackedParam {
  char letter;
  std::string type_message;
  std::string null_message;  // of tensors
};

// { int32 number of parameters, text of a wrong count, text of an interruption }, the parameters,
// then the texts.
llvm::Constant* MakePackedList(llvm::Module* module, const std::string& count_message,
                               const std::string& interrupted_message,
                               const std::vector<PackedParam>& params);

// Define the shared functions.
void EmitReport(llvm::Module* module);
void EmitCallPacked(llvm::Module* module);

// A function of another object of the set.
llvm::FunctionCallee SharedFunction(llvm::Module* module, const char* name,
                                    llvm::FunctionType* type);
llvm::FunctionType* ReportType(llvm::LLVMContext& context);
llvm::FunctionType* CallPackedType(llvm::LLVMContext& context);

}  // namespace relaxvm::codegen
