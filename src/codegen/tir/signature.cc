// SPDX-License-Identifier: Apache-2.0
// Sizes are bound by scalar parameters first, then by dimensions that are a size alone; all other
// dimensions are checked.
#include "codegen/tir/signature.h"

#include <unordered_set>

#include "tir/functor.h"
#include "tir/scalar_program.h"

namespace relaxvm::codegen {
namespace {

using ir::Expr;
using ir::Var;
using Bound = std::unordered_set<const tvm::ffi::Object*>;

void CheckBound(const Signature& sig, const Bound& bound, const SizeCheck& check) {
  tir::PostOrderVisit(tir::Evaluate(check.value), [&](const tvm::ffi::ObjectRef& node) {
    const auto* var = node.as<ir::VarObj>();
    if (var == nullptr || bound.count(var)) return;
    Fail(ErrorKind::kValueError, var->span.Place(), "tensor program ", sig.name, ": the size ",
         var->name, " in the shape of ", sig.tensors[check.tensor]->name,
         " is bound by no parameter; pass it as a scalar, or as a dimension of its own");
  });
}

}  // namespace

Signature SignatureOf(const tir::PrimFunc& func, const std::string& name) {
  if (tir::ReturnsScalar(func)) {
    Fail(ErrorKind::kValueError, func->span.Place(), "tensor program ", name,
         " returns a scalar that takes buffers, loops or calls; write it to a buffer");
  }
  Signature sig;
  sig.name = name;
  sig.num_outputs = static_cast<int>(ir::GetAttr<int64_t>(func->attrs, tir::attr::kNumOutputs, 1));
  Bound bound;
  for (const Var& param : func->params) {
    if (tir::IsBuffer(param)) {
      tir::Buffer buffer(param);
      if (!buffer.type()->strides.empty() || buffer.type()->elem_offset.defined()) {
        Fail(ErrorKind::kValueError, param->span.Place(), "tensor program ", name, ": parameter ",
             param->name, " has strides or an offset; parameters are compact");
      }
      sig.params += 't';
      sig.tensors.push_back(buffer);
      continue;
    }
    DLDataType dtype = param.dtype();
    if (dtype.lanes != 1 || !(IsInteger(dtype) || IsBool(dtype) || IsFloat(dtype))) {
      Fail(ErrorKind::kTypeError, param->span.Place(), "tensor program ", name, ": parameter ",
           param->name, " is a ", DTypeName(dtype),
           "; parameters are buffers, integers and floats");
    }
    sig.params += IsFloat(dtype) ? 'f' : 'i';
    sig.scalars.push_back(param);
    bound.insert(param.get());
  }
  for (int t = 0; t < static_cast<int>(sig.tensors.size()); ++t) {
    const auto& shape = sig.tensors[t].shape();
    for (int d = 0; d < static_cast<int>(shape.size()); ++d) {
      const auto* var = shape[d].as<ir::VarObj>();
      if (var != nullptr && bound.insert(var).second) {
        sig.sizes.push_back({tvm::ffi::GetRef<Var>(var), t, d});
      } else {
        sig.checks.push_back({t, d, shape[d]});
      }
    }
  }
  for (const SizeCheck& check : sig.checks) CheckBound(sig, bound, check);
  return sig;
}

}  // namespace relaxvm::codegen
