// SPDX-License-Identifier: Apache-2.0
// The direct entry: all arguments are compared with what is usual in straight-line code, then comes
// the body. What differs, and whether that is an error, is found out by a function that all kernels
// share, from a list of checks.
// Then the packed entry, which any tvm-ffi program calls:
// int __tvm_ffi_<name>(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result)
// DLTensor: data 0, device 8 (type, id), ndim 16, dtype 20, shape 24, strides 32, byte_offset 40.
#include <cstring>

#include "codegen/llvm/checks.h"
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
  flush_subnormals_ = module_->getTargetTriple().isX86() &&
                      ir::GetAttr<bool>(func->attrs, tir::kFlushSubnormals, false);
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

// `count` words of 64 bits in a row.
Value* ProgramEmitter::LoadWords(Value* base, int64_t offset, size_t count) {
  Value* address =
      b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), base, static_cast<uint64_t>(offset));
  auto* type = llvm::FixedVectorType::get(b_.getInt64Ty(), static_cast<unsigned>(count));
  return b_.CreateAlignedLoad(type, address, llvm::Align(8));
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

  std::vector<Value*> tensors;
  for (size_t i = 0; i < sig.tensors.size(); ++i)
    tensors.push_back(LoadField(fn->getArg(1), static_cast<int64_t>(8 * i), ptr));
  CheckArguments(sig, tensors);
  DefineParameters(sig, tensors);
  f_->memo.clear();
  FlushSubnormals();
  Visit(func->body);
  FreeWorkspaces(0);
  Return(b_.getInt32(0));
  llvm::IRBuilder<>(frame.allocas).CreateBr(body);
  f_ = nullptr;
  return fn;
}

// Sizes are read when every tensor has the dimensions that they are looked for in.
void ProgramEmitter::CheckArguments(const Signature& sig, const std::vector<Value*>& tensors) {
  std::vector<Check> types, sizes;
  std::vector<Value*> values;
  Differences wrong_types(b_), wrong_sizes(b_);
  for (int i = 0; i < static_cast<int>(tensors.size()); ++i) {
    CheckTensor(sig, i, tensors[i], &types, &wrong_types);
  }
  wrong_types.WhereAny([&](auto*) { Report(types, {}, nullptr); });
  BindScalars(sig, f_->function->getArg(2));
  std::vector<std::vector<Value*>> dims = CheckSizes(sig, tensors, &sizes, &values, &wrong_sizes);
  for (int i = 0; i < static_cast<int>(tensors.size()); ++i) {
    CheckStrides(sig, i, tensors[i], dims[i], &sizes, &wrong_sizes);
  }
  wrong_sizes.WhereAny([&](auto* good) { Report(sizes, values, good); });
}

// Leaves with the error of the first of `checks` that fails, or goes on at `good` where that is
// possible.
void ProgramEmitter::Report(const std::vector<Check>& checks, const std::vector<Value*>& values,
                            llvm::BasicBlock* good) {
  llvm::Type* ptr = b_.getPtrTy();
  Value* array = llvm::Constant::getNullValue(ptr);
  if (!values.empty()) array = Alloca(b_.getInt64Ty(), values.size(), 8);
  for (size_t i = 0; i < values.size(); ++i)
    b_.CreateStore(values[i], b_.CreateConstInBoundsGEP1_64(b_.getInt64Ty(), array, i));
  Value* is_error =
      b_.CreateCall(SharedFunction(module_, kReportSymbol, ReportType(module_->getContext())),
                    {f_->context, MakeCheckList(module_, checks), f_->function->getArg(1), array});
  if (good != nullptr) {
    auto* leave = llvm::BasicBlock::Create(module_->getContext(), "leave", f_->function);
    b_.CreateCondBr(is_error, leave, good);
    b_.SetInsertPoint(leave);
  }
  Return(b_.getInt32(static_cast<uint32_t>(kKernelError)));
}

// Rank, dtype and device.
void ProgramEmitter::CheckTensor(const Signature& sig, int index, Value* tensor,
                                 std::vector<Check>* checks, Differences* wrong) {
  const tir::Buffer& buffer = sig.tensors[index];
  std::string place = Place(sig, index);
  auto ndim = static_cast<uint32_t>(buffer.shape().size());
  uint32_t dtype = DtypeWord(buffer.elem_dtype());
  checks->push_back({Check::kField, index, 16, ndim,
                     place + "expected " + std::to_string(ndim) + " dimensions, shape " +
                         ShowShape(buffer.shape())});
  checks->push_back({Check::kDtype, index, 20, dtype,
                     place + "expected dtype " + DTypeName(buffer.elem_dtype())});
  checks->push_back({Check::kField, index, 8, kDLCPU, place + "expected a tensor on the CPU"});
  // At once: device type and id (any), rank and dtype.  Every target is little-endian.
  Value* words = LoadWords(tensor, 8, 2);
  auto* usual = llvm::ConstantDataVector::get(
      module_->getContext(), llvm::ArrayRef<uint64_t>{kDLCPU, uint64_t{dtype} << 32 | ndim});
  auto* counts = llvm::ConstantDataVector::get(module_->getContext(),
                                               llvm::ArrayRef<uint64_t>{UINT32_MAX, UINT64_MAX});
  wrong->AddBits(b_.CreateAnd(b_.CreateXor(words, usual), counts));
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

// Gives the sizes of all dimensions.
std::vector<std::vector<Value*>> ProgramEmitter::CheckSizes(const Signature& sig,
                                                            const std::vector<Value*>& tensors,
                                                            std::vector<Check>* checks,
                                                            std::vector<Value*>* values,
                                                            Differences* wrong) {
  std::vector<std::vector<Value*>> dims(tensors.size());
  std::vector<Value*> shapes(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    dims[i].resize(sig.tensors[i].shape().size());
    if (!dims[i].empty()) shapes[i] = LoadField(tensors[i], 24, b_.getPtrTy());
  }
  for (const SizeBinding& binding : sig.sizes) {
    Value* size = LoadField(shapes[binding.tensor], 8 * binding.dim, b_.getInt64Ty());
    DLDataType t = binding.size.dtype();
    f_->vars[binding.size.get()] = ops_.Cast(size, Int(64), t);
    least_[binding.size.get()] = 0;
    dims[binding.tensor][binding.dim] = size;
  }
  f_->memo.clear();
  std::vector<std::vector<Value*>> expected(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) expected[i].resize(dims[i].size());
  for (const SizeCheck& check : sig.checks) {
    Value* size = EvalIndex(check.value);
    expected[check.tensor][check.dim] = dims[check.tensor][check.dim] = size;
    auto* number = llvm::dyn_cast<llvm::ConstantInt>(size);
    checks->push_back(
        {number != nullptr ? Check::kSize : Check::kValue, check.tensor, check.dim,
         number != nullptr ? number->getSExtValue() : static_cast<int64_t>(values->size()),
         Place(sig, check.tensor) + "dimension " + std::to_string(check.dim) + " must be " +
             Show(check.value) + "; expected shape " +
             ShowShape(sig.tensors[check.tensor].shape())});
    if (number == nullptr) values->push_back(size);
  }
  f_->memo.clear();
  for (size_t i = 0; i < tensors.size(); ++i) CompareWords(shapes[i], expected[i], wrong);
  return dims;
}

// Compact: null strides, or those of a dense row-major tensor; dimensions of size 1 may have any,
// and so may an empty tensor.  Usual are strides that are products of sizes in all dimensions but
// those of size 1 in front.
void ProgramEmitter::CheckStrides(const Signature& sig, int index, Value* tensor,
                                  const std::vector<Value*>& dims, std::vector<Check>* checks,
                                  Differences* wrong) {
  if (dims.empty()) return;
  checks->push_back({Check::kCompact, index, 0, 0,
                     Place(sig, index) + "expected a compact tensor (row-major, without gaps)"});
  size_t first = 0;
  auto is_one = [](Value* size) {
    auto* number = llvm::dyn_cast<llvm::ConstantInt>(size);
    return number != nullptr && number->isOne();
  };
  while (first < dims.size() && is_one(dims[first])) ++first;
  if (first == dims.size()) return;
  // Sizes stand in for strides that are null: equal or not, nothing comes of it.
  Value* strides = LoadField(tensor, 32, b_.getPtrTy());
  Value* read =
      b_.CreateSelect(b_.CreateIsNull(strides), LoadField(tensor, 24, b_.getPtrTy()), strides);
  std::vector<Value*> expected(dims.size());
  Value* product = b_.getInt64(1);
  for (size_t d = dims.size(); d-- > first; product = b_.CreateMul(product, dims[d])) {
    expected[d] = product;
  }
  CompareWords(read, expected, wrong);
}

// Those of `expected` that are null are not looked at; up to four known ones are compared at once.
void ProgramEmitter::CompareWords(Value* base, const std::vector<Value*>& expected,
                                  Differences* wrong) {
  for (size_t at = 0; at < expected.size();) {
    std::vector<uint64_t> known;
    while (at + known.size() < expected.size() && known.size() < 4) {
      auto* word = llvm::dyn_cast_or_null<llvm::ConstantInt>(expected[at + known.size()]);
      if (word == nullptr) break;
      known.push_back(word->getZExtValue());
    }
    if (known.size() == 3) known.pop_back();
    auto offset = static_cast<int64_t>(8 * at);
    if (known.size() > 1) {
      wrong->AddBits(b_.CreateXor(LoadWords(base, offset, known.size()),
                                  llvm::ConstantDataVector::get(module_->getContext(), known)));
    } else if (expected[at] != nullptr) {
      wrong->AddBits(b_.CreateXor(LoadField(base, offset, b_.getInt64Ty()), expected[at]));
    }
    at += std::max<size_t>(known.size(), 1);
  }
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

void ProgramEmitter::EmitPacked(const Signature& sig, llvm::Function* direct,
                                const std::string& name) {
  std::vector<PackedParam> params;
  size_t num_tensors = 0, num_scalars = 0;
  for (char letter : sig.params) {
    const ffi::String& called =
        letter == 't' ? sig.tensors[num_tensors++]->name : sig.scalars[num_scalars++]->name;
    std::string place = sig.name + ": argument " + std::to_string(params.size()) + " (" +
                        std::string(called) + "): expected ";
    const char* what = letter == 't' ? "a tensor" : letter == 'f' ? "a number" : "an integer";
    params.push_back({letter, place + what, letter == 't' ? place + "a tensor, not null" : ""});
  }
  llvm::Constant* list = MakePackedList(
      module_, sig.name + ": expected " + std::to_string(params.size()) + " arguments",
      sig.name + ": interrupted", params);

  llvm::LLVMContext& context = module_->getContext();
  llvm::Type *ptr = b_.getPtrTy(), *i32 = b_.getInt32Ty();
  auto* type = llvm::FunctionType::get(i32, {ptr, ptr, i32, ptr}, false);
  auto* fn =
      llvm::Function::Create(type, llvm::Function::ExternalLinkage, kPackedPrefix + name, module_);
  fn->copyAttributesFrom(direct);
  fn->setVisibility(llvm::GlobalValue::DefaultVisibility);
  b_.SetInsertPoint(llvm::BasicBlock::Create(context, "entry", fn));
  llvm::FunctionCallee call = SharedFunction(module_, kCallPackedSymbol, CallPackedType(context));
  llvm::CallInst* rc = b_.CreateCall(call, {list, direct, fn->getArg(1), fn->getArg(2)});
  rc->setTailCall();
  b_.CreateRet(rc);
}

}  // namespace relaxvm::codegen
