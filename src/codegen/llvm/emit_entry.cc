// SPDX-License-Identifier: Apache-2.0
// The direct entry: checks of all arguments in straight-line code, then the body. What is wrong
// is found out by a function that all kernels share, from the same checks as a list.
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
  wrong_types.LeaveIfAny([&] { Report(types, {}); });
  BindScalars(sig, f_->function->getArg(2));
  std::vector<std::vector<Value*>> dims = CheckSizes(sig, tensors, &sizes, &values, &wrong_sizes);
  for (int i = 0; i < static_cast<int>(tensors.size()); ++i) {
    CheckStrides(sig, i, tensors[i], dims[i], &sizes, &wrong_sizes);
  }
  wrong_sizes.LeaveIfAny([&] { Report(sizes, values); });
}

// Leaves with the error of the first of `checks` that fails.
void ProgramEmitter::Report(const std::vector<Check>& checks, const std::vector<Value*>& values) {
  llvm::Type* ptr = b_.getPtrTy();
  Value* array = llvm::Constant::getNullValue(ptr);
  if (!values.empty()) array = Alloca(b_.getInt64Ty(), values.size(), 8);
  for (size_t i = 0; i < values.size(); ++i)
    b_.CreateStore(values[i], b_.CreateConstInBoundsGEP1_64(b_.getInt64Ty(), array, i));
  b_.CreateCall(SharedFunction(module_, kReportSymbol, ReportType(module_->getContext())),
                {f_->context, MakeCheckList(module_, checks), f_->function->getArg(1), array});
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
  // Both at once: every target is little-endian.
  wrong->Add(LoadField(tensor, 16, b_.getInt64Ty()), b_.getInt64(uint64_t{dtype} << 32 | ndim));
  Value* device = LoadField(tensor, 8, b_.getInt32Ty());
  wrong->Add(b_.CreateZExt(device, b_.getInt64Ty()), b_.getInt64(kDLCPU));
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
  for (const SizeCheck& check : sig.checks) {
    Value* size = LoadField(shapes[check.tensor], 8 * check.dim, b_.getInt64Ty());
    Value* expected = EvalIndex(check.value);
    wrong->Add(size, expected);
    dims[check.tensor][check.dim] = expected;
    auto* number = llvm::dyn_cast<llvm::ConstantInt>(expected);
    checks->push_back(
        {number != nullptr ? Check::kSize : Check::kValue, check.tensor, check.dim,
         number != nullptr ? number->getSExtValue() : static_cast<int64_t>(values->size()),
         Place(sig, check.tensor) + "dimension " + std::to_string(check.dim) + " must be " +
             Show(check.value) + "; expected shape " +
             ShowShape(sig.tensors[check.tensor].shape())});
    if (number == nullptr) values->push_back(expected);
  }
  f_->memo.clear();
  return dims;
}

// Compact: null strides, or those of a dense row-major tensor; dimensions of size 1 may have any.
// An empty tensor passes.
void ProgramEmitter::CheckStrides(const Signature& sig, int index, Value* tensor,
                                  const std::vector<Value*>& dims, std::vector<Check>* checks,
                                  Differences* wrong) {
  if (dims.empty()) return;
  checks->push_back({Check::kCompact, index, 0, 0,
                     Place(sig, index) + "expected a compact tensor (row-major, without gaps)"});
  Value* zero = b_.getInt64(0);
  Value* strides = LoadField(tensor, 32, b_.getPtrTy());
  Value* is_null = b_.CreateIsNull(strides);
  // What is read instead of null strides does not count.
  Value* read = b_.CreateSelect(is_null, LoadField(tensor, 24, b_.getPtrTy()), strides);
  Value* expected = b_.getInt64(1);
  Value* bits = zero;
  for (size_t d = dims.size(); d-- > 0;) {
    Value* is_one = b_.CreateICmpEQ(dims[d], b_.getInt64(1));
    auto* known = llvm::dyn_cast<llvm::ConstantInt>(is_one);
    if (known == nullptr || known->isZero()) {
      Value* stride = LoadField(read, static_cast<int64_t>(8 * d), b_.getInt64Ty());
      Value* differs = b_.CreateXor(stride, expected);
      bits = b_.CreateOr(bits, known != nullptr ? differs : b_.CreateSelect(is_one, zero, differs));
    }
    expected = b_.CreateMul(expected, dims[d]);
  }
  Value* passes = b_.CreateOr(is_null, b_.CreateICmpEQ(expected, zero));
  wrong->AddBits(b_.CreateSelect(passes, zero, bits));
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
