// SPDX-License-Identifier: Apache-2.0
// The direct entry: checks of all arguments in straight-line code, then the body.
// DLTensor: data 0, device 8 (type, id), ndim 16, dtype 20, shape 24, strides 32, byte_offset 40.
#include <cstring>

#include "codegen/llvm/emitter.h"
#include "support/error.h"
#include "target/kernel_abi.h"

namespace relaxvm::codegen {

using ir::Expr;
using llvm::Value;

namespace {

uint32_t DtypeWord(DLDataType t) {
  uint32_t word;
  static_assert(sizeof(t) == sizeof(word));
  std::memcpy(&word, &t, sizeof(word));
  return word;
}

// A short text of a size for messages: "n", "4", "(n + 1)".
std::string Show(const Expr& e) {
  if (const auto* imm = e.as<ir::IntImmObj>()) return std::to_string(imm->value);
  if (const auto* var = e.as<ir::VarObj>()) return var->name;
  if (const auto* cast = e.as<ir::CastObj>()) return Show(cast->value);
  if (const auto* binary = e.as<ir::BinaryObj>()) {
    static constexpr const char* kSigns[] = {"+", "-", "*", "/", "%", "//", "%", "min", "max"};
    int op = static_cast<int>(binary->op);
    std::string sign = op < 9 ? kSigns[op] : "?";
    return "(" + Show(binary->a) + " " + sign + " " + Show(binary->b) + ")";
  }
  return "...";
}

std::string ShowShape(const ffi::Array<Expr>& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + Show(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

std::string Place(const Signature& sig, int index) {
  return sig.name + ": parameter " + std::string(sig.tensors[index]->name) + ": ";
}

}  // namespace

void ProgramEmitter::Emit(const tir::PrimFunc& func, const Signature& sig,
                          const std::vector<std::string>& names) {
  name_ = sig.name;
  fast_pairs_ = ir::GetAttr<bool>(func->attrs, tir::kFastPairs, false);
  no_alias_ = ir::GetAttr<bool>(func->attrs, tir::attr::kNoAlias, false);
  llvm::Function* direct = EmitDirect(func, sig, names[0]);
  EmitPacked(sig, direct, names[0]);
  llvm::Function* packed = module_->getFunction(kPackedPrefix + names[0]);
  for (size_t i = 1; i < names.size(); ++i) {
    llvm::GlobalAlias::create(llvm::GlobalValue::ExternalLinkage, kPackedPrefix + names[i], packed);
    auto* alias = llvm::GlobalAlias::create(llvm::GlobalValue::ExternalLinkage,
                                            kDirectPrefix + names[i], direct);
    alias->setVisibility(llvm::GlobalValue::HiddenVisibility);
  }
}

Value* ProgramEmitter::LoadField(Value* base, int64_t offset, llvm::Type* type) {
  Value* address =
      b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), base, static_cast<uint64_t>(offset));
  return b_.CreateAlignedLoad(type, address,
                              llvm::Align(module_->getDataLayout().getABITypeAlign(type)));
}

llvm::Function* ProgramEmitter::EmitDirect(const tir::PrimFunc& func, const Signature& sig,
                                           const std::string& name) {
  llvm::LLVMContext& context = module_->getContext();
  llvm::Type* ptr = b_.getPtrTy();
  auto* type = llvm::FunctionType::get(b_.getInt32Ty(), {ptr, ptr, ptr}, false);
  auto* fn =
      llvm::Function::Create(type, llvm::Function::ExternalLinkage, kDirectPrefix + name, module_);
  fn->setVisibility(llvm::GlobalValue::HiddenVisibility);
  fn->setDoesNotThrow();
  Frame frame;
  frame.function = fn;
  frame.allocas = llvm::BasicBlock::Create(context, "entry", fn);
  frame.context = fn->getArg(0);
  f_ = &frame;
  auto* body = llvm::BasicBlock::Create(context, "body", fn);
  b_.SetInsertPoint(body);

  std::vector<Value*> tensors, shapes(sig.tensors.size());
  for (size_t i = 0; i < sig.tensors.size(); ++i) {
    tensors.push_back(LoadField(fn->getArg(1), static_cast<int64_t>(8 * i), ptr));
    CheckTensor(sig, static_cast<int>(i), tensors[i], &shapes[i]);
  }
  BindScalars(sig, fn->getArg(2));
  CheckSizes(sig, shapes);
  for (size_t i = 0; i < sig.tensors.size(); ++i)
    CheckStrides(sig, static_cast<int>(i), tensors[i], shapes[i]);
  DefineParameters(sig, tensors);
  f_->memo.clear();
  Visit(func->body);
  FreeWorkspaces(0);
  b_.CreateRet(b_.getInt32(0));
  llvm::IRBuilder<>(frame.allocas).CreateBr(body);
  f_ = nullptr;
  return fn;
}

// Rank, dtype and device; gives the pointer to the dimensions.
void ProgramEmitter::CheckTensor(const Signature& sig, int index, Value* tensor,
                                 Value** shape_out) {
  const tir::Buffer& buffer = sig.tensors[index];
  std::string place = Place(sig, index);
  size_t ndim = buffer.shape().size();
  Value* rank = LoadField(tensor, 16, b_.getInt32Ty());
  Require(b_.CreateICmpEQ(rank, b_.getInt32(static_cast<uint32_t>(ndim))), "ValueError",
          place + "expected " + std::to_string(ndim) + " dimensions, shape " +
              ShowShape(buffer.shape()));
  Value* dtype = LoadField(tensor, 20, b_.getInt32Ty());
  Require(b_.CreateICmpEQ(dtype, b_.getInt32(DtypeWord(buffer.elem_dtype()))), "TypeError",
          place + "expected dtype " + DTypeName(buffer.elem_dtype()));
  Value* device = LoadField(tensor, 8, b_.getInt32Ty());
  Require(b_.CreateICmpEQ(device, b_.getInt32(kDLCPU)), "ValueError",
          place + "expected a tensor on the CPU");
  *shape_out = LoadField(tensor, 24, b_.getPtrTy());
}

void ProgramEmitter::BindScalars(const Signature& sig, Value* scalars) {
  for (size_t i = 0; i < sig.scalars.size(); ++i) {
    const ir::Var& var = sig.scalars[i];
    DLDataType t = var.dtype();
    int64_t offset = static_cast<int64_t>(8 * i);
    Value* v = IsFloat(t) ? ops_.Cast(LoadField(scalars, offset, b_.getDoubleTy()), Float(64), t)
                          : ops_.Cast(LoadField(scalars, offset, b_.getInt64Ty()), Int(64), t);
    f_->vars[var.get()] = v;
  }
}

void ProgramEmitter::CheckSizes(const Signature& sig, const std::vector<Value*>& shapes) {
  for (const SizeBinding& binding : sig.sizes) {
    Value* size = LoadField(shapes[binding.tensor], 8 * binding.dim, b_.getInt64Ty());
    DLDataType t = binding.size.dtype();
    f_->vars[binding.size.get()] = ops_.Cast(size, Int(64), t);
    nonnegative_.insert(binding.size.get());
  }
  for (const SizeCheck& check : sig.checks) {
    f_->memo.clear();
    Value* size = LoadField(shapes[check.tensor], 8 * check.dim, b_.getInt64Ty());
    Value* expected = EvalIndex(check.value);
    std::string message = Place(sig, check.tensor) + "dimension " + std::to_string(check.dim) +
                          " must be " + Show(check.value) + "; expected shape " +
                          ShowShape(sig.tensors[check.tensor].shape());
    Require(b_.CreateICmpEQ(size, expected), "ValueError", message);
  }
  f_->memo.clear();
}

// Compact: null strides, or those of a dense row-major tensor; dimensions of size 1 may have any.
// An empty tensor passes.
void ProgramEmitter::CheckStrides(const Signature& sig, int index, Value* tensor, Value* shape) {
  size_t ndim = sig.tensors[index].shape().size();
  if (ndim == 0) return;
  llvm::LLVMContext& context = module_->getContext();
  auto* look = llvm::BasicBlock::Create(context, "strides", f_->function);
  auto* good = llvm::BasicBlock::Create(context, "compact", f_->function);
  Value* strides = LoadField(tensor, 32, b_.getPtrTy());
  b_.CreateCondBr(b_.CreateIsNull(strides), good, look);
  b_.SetInsertPoint(look);
  Value* expected = b_.getInt64(1);
  Value* ok = b_.getTrue();
  for (size_t d = ndim; d-- > 0;) {
    int64_t at = static_cast<int64_t>(8 * d);
    Value* size = LoadField(shape, at, b_.getInt64Ty());
    Value* same = b_.CreateICmpEQ(LoadField(strides, at, b_.getInt64Ty()), expected);
    ok = b_.CreateAnd(ok, b_.CreateOr(same, b_.CreateICmpEQ(size, b_.getInt64(1))));
    expected = b_.CreateMul(expected, size);
  }
  ok = b_.CreateOr(ok, b_.CreateICmpEQ(expected, b_.getInt64(0)));
  Require(ok, "ValueError",
          Place(sig, index) + "expected a compact tensor (row-major, without gaps)");
  b_.CreateBr(good);
  b_.SetInsertPoint(good);
}

void ProgramEmitter::DefineParameters(const Signature& sig, const std::vector<Value*>& tensors) {
  int first_output = static_cast<int>(sig.tensors.size()) - sig.num_outputs;
  for (int i = 0; i < static_cast<int>(sig.tensors.size()); ++i) {
    Value* data = LoadField(tensors[i], 0, b_.getPtrTy());
    Value* byte_offset = LoadField(tensors[i], 40, b_.getInt64Ty());
    data = b_.CreateGEP(b_.getInt8Ty(), data, byte_offset);
    auto role = i < first_output ? BufferSlot::Role::kInput : BufferSlot::Role::kOutput;
    DefineBuffer(sig.tensors[i], data, role);
  }
}

}  // namespace relaxvm::codegen
