// SPDX-License-Identifier: Apache-2.0
// Operations on matrix registers (tir/matrix.h) as AMX has them: Intel 64 and IA-32 Architectures
// Software Developer's Manual, volume 1, chapter 18.
#include <llvm/IR/IntrinsicsX86.h>

#include "codegen/llvm/emitter.h"
#include "support/error.h"
#include "tir/matrix.h"

namespace relaxvm::codegen {

using llvm::Value;
using tir::MatrixOp;
namespace Intrinsics = llvm::Intrinsic;

namespace {

// What LDTILECFG reads: 64 bytes, the number of the format first.
constexpr uint64_t kConfigBytes = 64, kRowBytesAt = 16, kRowsAt = 48;
constexpr uint8_t kFormat = 1;

Intrinsics::ID ProductOf(bool left_is_signed, bool right_is_signed) {
  if (left_is_signed) return right_is_signed ? Intrinsics::x86_tdpbssd : Intrinsics::x86_tdpbsud;
  return right_is_signed ? Intrinsics::x86_tdpbusd : Intrinsics::x86_tdpbuud;
}

}  // namespace

bool ProgramEmitter::EmitMatrixOp(const ir::CallObj* e) {
  const std::optional<MatrixOp> op = tir::AsMatrixOp(e);
  if (!op.has_value()) return false;
  auto call = [&](Intrinsics::ID id, llvm::ArrayRef<Value*> args) {
    b_.CreateIntrinsic(id, llvm::ArrayRef<llvm::Type*>(), args);
  };
  auto number = [&](int64_t i) -> Value* {
    return b_.getInt8(static_cast<uint8_t>(ir::AsInt(e->args[i]).value()));
  };
  auto pointer = [&] {
    const auto* load = e->args[1].as<tir::BufferLoadObj>();
    const BufferSlot& slot = SlotOf(load);
    return ElementPointer(slot, AddressOf(slot, load->indices).offset);
  };
  switch (*op) {
    case MatrixOp::kConfigure: ConfigureMatrices(e); break;
    case MatrixOp::kRelease: call(Intrinsics::x86_tilerelease, {}); break;
    case MatrixOp::kZero: call(Intrinsics::x86_tilezero, {number(0)}); break;
    case MatrixOp::kLoad:
      call(Intrinsics::x86_tileloadd64, {number(0), pointer(), EvalIndex(e->args[2])});
      break;
    case MatrixOp::kStore:
      call(Intrinsics::x86_tilestored64, {number(0), pointer(), EvalIndex(e->args[2])});
      break;
    case MatrixOp::kDot:
      call(ProductOf(ir::AsInt(e->args[3]).value() != 0, ir::AsInt(e->args[4]).value() != 0),
           {number(0), number(1), number(2)});
      break;
    case MatrixOp::kDotOfPairs:
      call(Intrinsics::x86_tdpbf16ps, {number(0), number(1), number(2)});
      break;
  }
  result_ = b_.getInt64(0);
  return true;
}

void ProgramEmitter::ConfigureMatrices(const ir::CallObj* e) {
  llvm::SmallVector<uint8_t, kConfigBytes> known(kConfigBytes, 0);
  known[0] = kFormat;
  std::vector<std::pair<uint64_t, Value*>> computed;  // bytes, and where they stand
  for (int64_t i = 0; i < tir::kMatrixRegisters; ++i) {
    const uint64_t at = static_cast<uint64_t>(i);
    known[kRowBytesAt + 2 * at] = static_cast<uint8_t>(ir::AsInt(e->args[2 * i + 1]).value());
    Value* rows = EvalIndex(e->args[2 * i]);
    if (const auto* constant = llvm::dyn_cast<llvm::ConstantInt>(rows)) {
      known[kRowsAt + at] = static_cast<uint8_t>(constant->getZExtValue());
    } else {
      computed.emplace_back(kRowsAt + at, b_.CreateTrunc(rows, b_.getInt8Ty()));
    }
  }
  llvm::Constant* bytes = llvm::ConstantDataArray::get(module_->getContext(), known);
  auto* config = new llvm::GlobalVariable(*module_, bytes->getType(), true,
                                          llvm::GlobalValue::PrivateLinkage, bytes, "matrices");
  config->setAlignment(llvm::Align(kConfigBytes));
  Value* from = config;
  if (!computed.empty()) {
    auto* vector = llvm::FixedVectorType::get(b_.getInt8Ty(), kConfigBytes);
    from = Alloca(b_.getInt8Ty(), kConfigBytes, kConfigBytes);
    b_.CreateStore(b_.CreateLoad(vector, config), from);
    for (const auto& [at, value] : computed)
      b_.CreateStore(value, b_.CreateConstGEP1_64(b_.getInt8Ty(), from, at));
  }
  b_.CreateIntrinsic(Intrinsics::x86_ldtilecfg, llvm::ArrayRef<llvm::Type*>(),
                     llvm::ArrayRef<Value*>(from));
}

}  // namespace relaxvm::codegen
