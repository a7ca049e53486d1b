// SPDX-License-Identifier: Apache-2.0
// Facts about integer expressions for Python: an analyzer that keeps what it was told.
#include "arith/analyzer.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/reflection/registry.h>

#include <memory>
#include <vector>

#include "api/convert.h"
#include "api/register.h"

namespace relaxvm::api {

namespace refl = tvm::ffi::reflection;
using ir::Expr;
using ir::Var;

namespace {

// An analyzer and the scopes that were entered, the innermost last.
class AnalyzerObj : public ffi::Object {
 public:
  ~AnalyzerObj() {
    while (!scopes.empty()) scopes.pop_back();
  }

  arith::Analyzer facts;
  std::vector<std::unique_ptr<arith::Analyzer::Scope>> scopes;

  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.sym.Analyzer", AnalyzerObj, ffi::Object);
};

using Ptr = ffi::ObjectPtr<AnalyzerObj>;

Expr Scalar(const Expr& e, DLDataTypeCode code) {
  const DLDataType dtype = e.dtype();
  if (dtype.code != code && !(code == kDLInt && dtype.code == kDLUInt))
    Fail(ErrorKind::kTypeError, "expected an expression of ", code == kDLBool ? "bool" : "integers",
         ", got one of ", DTypeName(dtype));
  return e;
}

Expr Number(const ffi::Any& value) { return Scalar(ToScalar(value, Int(64)), kDLInt); }

}  // namespace

void RegisterAnalyzer() {
  refl::ObjectDef<AnalyzerObj>(refl::init(false));
  refl::GlobalDef()
      .def("relaxvm.sym.Analyzer", [] { return ffi::ObjectRef(ffi::make_object<AnalyzerObj>()); })
      .def("relaxvm.sym.Simplify",
           [](Ptr a, ffi::Any e) { return a->facts.Simplify(ToScalar(e, Int(64))); })
      .def("relaxvm.sym.Prove",
           [](Ptr a, ffi::Any e) { return a->facts.Prove(Scalar(ToScalar(e), kDLBool)); })
      .def("relaxvm.sym.ProveEqual",
           [](Ptr a, ffi::Any x, ffi::Any y) { return a->facts.ProveEqual(Number(x), Number(y)); })
      .def("relaxvm.sym.Bounds",
           [](Ptr a, ffi::Any e) {
             const arith::Interval range = a->facts.Bounds(Number(e));
             return ffi::Array<int64_t>{range.min, range.max};
           })
      .def("relaxvm.sym.Modular",
           [](Ptr a, ffi::Any e) {
             const arith::ModularSet set = a->facts.Modular(Number(e));
             return ffi::Array<int64_t>{set.coeff, set.base};
           })
      .def("relaxvm.sym.BindValue",
           [](Ptr a, Var v, ffi::Any value) { a->facts.Bind(v, Number(value)); })
      .def("relaxvm.sym.BindRange",
           [](Ptr a, Var v, ffi::Any min, ffi::Any extent) {
             a->facts.Bind(v, Number(min), Number(extent));
           })
      .def("relaxvm.sym.SetBounds",
           [](Ptr a, Var v, int64_t min, int64_t max) {
             a->facts.BindRange(v, {.min = min, .max = max});
           })
      .def("relaxvm.sym.EnterScope",
           [](Ptr a, ffi::Any condition) {
             const Expr fact = Scalar(ToScalar(condition), kDLBool);
             a->scopes.push_back(std::make_unique<arith::Analyzer::Scope>(&a->facts, fact));
           })
      .def("relaxvm.sym.ExitScope", [](Ptr a) {
        if (a->scopes.empty()) Fail(ErrorKind::kValueError, "no constraint_scope was entered");
        a->scopes.pop_back();
      });
}

}  // namespace relaxvm::api
