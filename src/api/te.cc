// SPDX-License-Identifier: Apache-2.0
// Tensor expressions for Python: stages by formulas over given index variables, and the operators'
// compute rules.
#include <tvm/ffi/reflection/registry.h>

#include <string>
#include <unordered_set>

#include "api/convert.h"
#include "api/register.h"
#include "ir/visitor.h"
#include "ops/op_def.h"
#include "tir/functor.h"
#include "tir/tensor.h"

namespace relaxvm::api {

namespace refl = tvm::ffi::reflection;
using ffi::Any;
using ffi::Array;
using ir::Expr;
using ir::Var;
using tir::Tensor;

namespace {

// `value` with index variables replaced, also inside element accesses.
class Replace : public tir::StmtMutator {
 public:
  Replace(const Array<Var>& vars, const Array<Expr>& values) {
    for (size_t i = 0; i < vars.size(); ++i) ir::Mutator::Replace(vars[i], values[i]);
  }
  Expr MutateOther(const Expr& e) override {
    const auto* load = e.as<tir::TensorLoadObj>();
    if (load == nullptr) return tir::StmtMutator::MutateOther(e);
    return tir::TensorLoad(load->tensor,
                           load->indices.Map([this](const Expr& i) { return Mutate(i); }));
  }
};

Expr Substituted(const Expr& value, const Array<Var>& vars, const Array<Expr>& values) {
  return Replace(vars, values).Mutate(value);
}

tir::Reducer ReducerCalled(const ffi::String& kind, DLDataType dtype) {
  if (kind == "sum") return tir::SumReducer(dtype);
  if (kind == "prod") return tir::ProdReducer(dtype);
  if (kind == "max") return tir::MaxReducer(dtype);
  if (kind == "min") return tir::MinReducer(dtype);
  Fail(ErrorKind::kValueError, "there is no reduction '", kind, "'; there are sum, prod, max, min");
}

Tensor Reduce(ffi::String kind, Array<Any> shape, Array<Var> indices, Array<Var> axes,
              Array<Any> extents, Expr value, ffi::String name) {
  auto formula = [=](const tir::Indices& i, const tir::Indices& r) {
    return Substituted(Substituted(value, indices, i), axes, r);
  };
  return tir::Reduce(ToScalars(shape), ToScalars(extents), ReducerCalled(kind, value.dtype()),
                     formula, std::string(name));
}

// A reduction of the caller's own: (lhs, rhs, result, identity) as Reducer has them, one of each
// for every value.
Array<Tensor> ReduceBy(Array<Array<Any>> reducer, Array<Any> shape, Array<Var> indices,
                       Array<Var> axes, Array<Any> extents, Array<Any> values,
                       Array<ffi::String> names) {
  auto variables = [](const Array<Any>& list) {
    Array<Var> result;
    for (const Any& v : list) result.push_back(v.cast<Var>());
    return result;
  };
  const Array<Expr> reduced = ToScalars(values), result = ToScalars(reducer[2]),
                    identity = ToScalars(reducer[3]);
  const Array<Var> lhs = variables(reducer[0]), rhs = variables(reducer[1]);
  if (result.size() != reduced.size() || identity.size() != reduced.size()) {
    Fail(ErrorKind::kValueError, "comm_reducer: ", reduced.size(), " values are reduced, ",
         result.size(), " are combined and ", identity.size(), " have an identity");
  }
  for (size_t i = 0; i < reduced.size(); ++i) {
    for (const Expr& e : {result[i], identity[i]}) {
      if (e.dtype() == reduced[i].dtype()) continue;
      Fail(ErrorKind::kTypeError, "comm_reducer: a value of ", DTypeName(reduced[i].dtype()),
           " is combined, or begins, as ", DTypeName(e.dtype()));
    }
  }
  auto formula = [=](const tir::Indices& i, const tir::Indices& r) {
    std::vector<Expr> at;
    for (const Expr& e : reduced) at.push_back(Substituted(Substituted(e, indices, i), axes, r));
    return at;
  };
  std::vector<std::string> texts;
  for (const ffi::String& name : names) texts.emplace_back(name);
  const std::vector<Tensor> made =
      tir::MultiReduce(ToScalars(shape), ToScalars(extents),
                       tir::Reducer(lhs, rhs, result, identity), formula, std::move(texts));
  return Array<Tensor>(made.begin(), made.end());
}

std::vector<Tensor> List(const Array<Tensor>& tensors) { return {tensors.begin(), tensors.end()}; }

// Sizes in the outputs' shapes that no input's shape binds.
Array<Var> FreeSizes(const Array<Tensor>& inputs, const Array<Tensor>& outputs) {
  std::unordered_set<const ffi::Object*> known;
  for (const Tensor& t : inputs) {
    for (const Expr& d : t->shape) {
      if (d.as<ir::VarObj>()) known.insert(d.get());
    }
  }
  Array<Var> free;
  auto look = [&](const Expr& e) {
    for (const Var& v : ir::FreeVars(e)) {
      if (known.insert(v.get()).second) free.push_back(v);
    }
  };
  for (const Tensor& t : inputs) {
    for (const Expr& d : t->shape) look(d);
  }
  for (const Tensor& t : outputs) {
    for (const Expr& d : t->shape) look(d);
  }
  return free;
}

// The compute rule of an operator on tensors; other arguments are expressions, numbers or lists.
class Application {
 public:
  explicit Application(const std::string& op)
      : op_(op), def_(ops::RecordOf(ops::GetOp(op).get())) {}

  Array<Tensor> Run(const Array<Any>& given, const ffi::Map<ffi::String, Any>& attrs) {
    if (!def_.compute)
      Fail(ErrorKind::kNotImplementedError, op_, " is not described by a tensor expression");
    Array<Expr> args;
    ops::ComputeArgs in{.call = ir::Call(ffi::UnsafeInit{}), .tensors = {}, .out = {}};
    for (const Any& a : given) {
      ops::Tensors tensors;
      args.push_back(Convert(a, &tensors));
      in.tensors.push_back(std::move(tensors));
    }
    in.call = ops::MakeCall(op_, args, attrs);
    auto facts = ops::MakeTypeContext();
    ir::BlockBuilder builder(facts.get());
    in.out = builder.InferType(in.call);
    in.call->ty = in.out;
    in.tensors.resize(in.call->args.size());
    std::vector<Tensor> results = def_.compute(in, in.call->attrs);
    return Array<Tensor>(results.begin(), results.end());
  }

 private:
  Expr Convert(const Any& value, ops::Tensors* tensors) {
    if (auto t = value.as<Tensor>(); t && t->defined()) {
      tensors->push_back(*t);
      return Var((*t)->name, ir::TensorType((*t)->shape, (*t)->dtype));
    }
    if (auto e = value.as<Expr>(); e && e->defined()) return *e;
    if (auto list = value.as<Array<Any>>()) {
      Array<Expr> fields;
      bool scalars = true;
      for (const Any& v : *list) {
        fields.push_back(Convert(v, tensors));
        scalars = scalars && ir::IsPrim(fields.back());
      }
      return scalars ? Expr(ir::ShapeExpr(fields)) : Expr(ir::Tuple(fields));
    }
    if (auto text = value.as<ffi::String>()) return ir::StringImm(*text);
    if (auto dtype = value.as<DLDataType>()) return ir::DataTypeImm(*dtype);
    return ToScalar(value);
  }

  const std::string op_;
  const ops::OpDef& def_;
};

}  // namespace

void RegisterTensorExpressions() {
  refl::ObjectDef<tir::TensorObj>(refl::init(false))
      .def_ro("name", &tir::TensorObj::name)
      .def_ro("shape", &tir::TensorObj::shape)
      .def_ro("dtype", &tir::TensorObj::dtype)
      .def_ro("stage", &tir::TensorObj::stage)
      .def_ro("index", &tir::TensorObj::index);
  refl::ObjectDef<tir::TensorLoadObj>(refl::init(false))
      .def_ro("tensor", &tir::TensorLoadObj::tensor)
      .def_ro("indices", &tir::TensorLoadObj::indices);
  refl::GlobalDef()
      .def("relaxvm.te.Placeholder",
           [](ffi::String name, Array<Any> shape, DLDataType dtype) {
             return Tensor(name, ToScalars(shape), dtype);
           })
      .def("relaxvm.te.Load",
           [](Tensor tensor, Array<Any> indices) { return tensor(ToScalars(indices)); })
      .def("relaxvm.te.Compute",
           [](Array<Any> shape, Array<Var> indices, Any value, ffi::String name) {
             Expr e = ToScalar(value);
             return tir::Compute(
                 ToScalars(shape),
                 [=](const tir::Indices& i) { return Substituted(e, indices, i); },
                 std::string(name));
           })
      .def("relaxvm.te.Reduce", Reduce)
      .def("relaxvm.te.ReduceBy", ReduceBy)
      .def("relaxvm.te.FreeSizes", FreeSizes)
      .def("relaxvm.te.CreatePrimFunc",
           [](Array<Tensor> inputs, Array<Tensor> outputs, Array<Var> sizes) {
             return tir::CreatePrimFunc(List(inputs), List(outputs), sizes);
           })
      .def("relaxvm.te.ApplyOperator",
           [](ffi::String op, Array<Any> args, ffi::Map<ffi::String, Any> attrs) {
             return Application(std::string(op)).Run(args, attrs);
           });
}

}  // namespace relaxvm::api
