// SPDX-License-Identifier: Apache-2.0
// The record of an operator: everything there is to say about it, in one place.  Each operator is a
// function that returns an OpDef, named in op_list.def; builders, Python functions, script names,
// documentation and tests derive from it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ir/block_builder.h"
#include "tir/tensor.h"

namespace relaxvm::ops {

namespace ffi = tvm::ffi;
using ir::Call;
using ir::Effect;
using ir::Expr;
using ir::Intrin;
using ir::TensorType;
using ir::Type;
using tir::Indices;
using tir::Tensor;

using Exprs = std::vector<Expr>;
using Tensors = std::vector<Tensor>;
using Dims = ffi::Array<Expr>;
using Ints = std::vector<int64_t>;

// What a builder accepts for an argument, besides an expression.
enum class ArgKind : uint8_t {
  kTensor,   // an expression; Python numbers and arrays become constants of the first tensor
             // argument's dtype
  kTensors,  // one expression of tuple type, or a list of expressions
  kShape,    // a shape expression, or a list of integers and scalars
  kPrim,     // a scalar expression, or a number
  kAny,      // any expression
};

struct ArgDoc {
  const char* name;
  const char* doc;
  ArgKind kind = ArgKind::kTensor;
  bool optional = false;  // may be left out at the end of the call
};

// One attribute in erased form.
struct AttrField {
  const char* name;
  const char* type;  // "int", "float", "bool", "str", "dtype", "ints", "floats", "any"; with '?'
                     // when it may be None
  const char* doc;
  ffi::Any default_value;
  bool required = false;
};

struct Sample {
  // "x: f32[4, 8]", "axis=1": tensors first, then other arguments and attributes as Python
  // literals.
  std::vector<std::string> items;
};

// What a type rule sees: the call, its arguments' types, facts about integers, and errors that name
// operator and argument.
class TypeCtx {
 public:
  TypeCtx(const Call& call, const struct OpDef& def, ir::TypeContext& facts)
      : call_(call), def_(def), facts_(facts) {}

  size_t size() const { return call_->args.size(); }
  const Expr& arg(size_t i) const;
  const Type& type(size_t i) const { return arg(i)->ty; }
  TensorType Tensor(size_t i) const;  // error unless it is a tensor
  TensorType Float(size_t i) const;   // error unless a tensor of floats, or of unknown dtype
  TensorType TensorOf(size_t i, bool (*accepts)(DLDataType), const char* what) const;
  std::vector<TensorType> TensorTuple(size_t i) const;  // error unless a tuple of tensors
  std::optional<Dims> Shape(
      size_t i) const;  // dimensions of a tensor, or of a shape value; absent when unknown
  DLDataType Prim(size_t i) const;  // dtype of a scalar argument
  // `axis` counted from the front; error when out of [-ndim, ndim).  `ndim` below 0 (unknown):
  // error.
  int64_t Axis(int64_t axis, int64_t ndim) const;
  Ints Axes(const Ints& axes, int64_t ndim) const;  // the same for several; error on a repeated one
  void SameDtype(size_t i, size_t j) const;         // error when both are known and differ
  void CheckRank(size_t i, int64_t ndim) const;

  Expr Simplify(const Expr& e) const { return facts_.Simplify(e); }
  bool Equal(const Expr& a, const Expr& b) const { return facts_.ProveEqual(a, b); }
  bool Prove(const Expr& condition) const { return facts_.Prove(condition); }
  ir::TypeContext& facts() const { return facts_; }
  // The broadcast of two shapes, NumPy's rules; absent when a pair of dimensions cannot be decided.
  std::optional<Dims> Broadcast(const Dims& a, const Dims& b) const;

  template <typename... Parts>
  [[noreturn]] void Error(ErrorKind kind, const Parts&... parts) const {
    Fail(kind, Place(), Name(), ": ", parts...);
  }
  SourcePlace Place() const;
  std::string Name() const;              // "nn.softmax"
  std::string Describe(size_t i) const;  // "x: Tensor((4, n), float32)"

 private:
  const Call& call_;
  const OpDef& def_;
  ir::TypeContext& facts_;
};

// What a compute rule sees: tensors for tensor arguments, expressions for the others, and the
// result's type.
struct ComputeArgs {
  Call call;
  std::vector<Tensors>
      tensors;  // per argument; one entry for a tensor, several for a tuple, none for the others
  Type out;     // the inferred type of the call

  const Tensor& operator[](size_t i) const { return tensors[i].at(0); }
  const Tensors& Tuple(size_t i) const { return tensors[i]; }
  Dims Shape(size_t i) const;  // dimensions of a shape argument
  Expr Prim(size_t i) const;   // a scalar argument
  bool Has(size_t i) const { return i < call->args.size(); }
  TensorType OutType(size_t i = 0) const;  // the result, or the i-th of a tuple
  Dims OutShape(size_t i = 0) const;
  DLDataType OutDtype(size_t i = 0) const { return OutType(i)->dtype; }
};

// How operators take a layout change (passes/layout); see ops/layout_rule.h.
struct LayoutRule;

struct OpDef {
  std::string name;  // without "relax.": "nn.softmax"
  std::string doc;   // one sentence
  std::vector<ArgDoc> args;
  std::vector<AttrField> attrs;
  std::function<Type(TypeCtx&, const ir::Attrs&)> type;
  // Absent: the operator is not lowered to a tensor program (it is a call of the VM, or is
  // rewritten by a pass).
  std::function<Tensors(const ComputeArgs&, const ir::Attrs&)> compute;
  // The operator in terms of simpler ones, for DecomposeOps; emits through the builder.
  std::function<Expr(ir::BlockBuilder&, const Call&, const ir::Attrs&)> decompose;
  ir::NormalizeRule normalize;
  Effect effect = Effect::kPure;
  bool variadic = false;         // any number of arguments
  const char* packed = nullptr;  // lowered to a call of this packed function
  std::shared_ptr<const LayoutRule> layout;
  // NumPy statements that set `out` (or `out0`, `out1`...) from the arguments' and attributes'
  // names.
  std::string reference;
  std::vector<Sample> samples;
  // dtypes the oracle test skips although the type rule allows them, with the reason.
  std::vector<std::pair<const char*, const char*>> exceptions;
};

// ---- attributes of a C++ struct <-> the generic Attrs object

template <typename T>
struct AttrCodec;  // type name, to Any, from Any: for int64_t, double, bool, std::string,
                   // DLDataType, Ints, std::vector<double>, std::optional of these, ffi::Any
#define RELAXVM_ATTR_CODEC(T, text)            \
  template <>                                  \
  struct AttrCodec<T> {                        \
    static constexpr const char* kType = text; \
    static ffi::Any Encode(const T& value);    \
    static T Decode(const ffi::Any& value);    \
  }
RELAXVM_ATTR_CODEC(int64_t, "int");
RELAXVM_ATTR_CODEC(double, "float");
RELAXVM_ATTR_CODEC(bool, "bool");
RELAXVM_ATTR_CODEC(std::string, "str");
RELAXVM_ATTR_CODEC(DLDataType, "dtype");
RELAXVM_ATTR_CODEC(Ints, "ints");
RELAXVM_ATTR_CODEC(std::vector<double>, "floats");
RELAXVM_ATTR_CODEC(ffi::Any, "any");
RELAXVM_ATTR_CODEC(std::optional<int64_t>, "int?");
RELAXVM_ATTR_CODEC(std::optional<double>, "float?");
RELAXVM_ATTR_CODEC(std::optional<std::string>, "str?");
RELAXVM_ATTR_CODEC(std::optional<DLDataType>, "dtype?");
RELAXVM_ATTR_CODEC(std::optional<Ints>, "ints?");
#undef RELAXVM_ATTR_CODEC

template <typename Struct>
struct AttrMember {
  AttrField field;
  std::function<void(const ffi::Any&, Struct*)> set;

  // {"axis", &Softmax::axis, "Axis to normalise."}: the default is the member's initialiser.
  template <typename T>
  AttrMember(const char* name, T Struct::* member, const char* doc, bool required = false)
      : field{name, AttrCodec<T>::kType, doc, AttrCodec<T>::Encode(Struct{}.*member), required},
        set([member](const ffi::Any& value, Struct* s) {
          s->*member = AttrCodec<T>::Decode(value);
        }) {}
};

struct NoAttrs {};

template <typename A>
struct OpRecord {
  const char* name;
  const char* doc;
  std::vector<ArgDoc> args = {};
  std::vector<AttrMember<A>> attrs = {};
  const char* reference = "";
  std::vector<Sample> samples = {};
  std::function<Type(TypeCtx&, const A&)> type = nullptr;
  std::function<Tensors(const ComputeArgs&, const A&)> compute = nullptr;
  std::function<Expr(ir::BlockBuilder&, const Call&, const A&)> decompose = nullptr;
  ir::NormalizeRule normalize = nullptr;
  Effect effect = Effect::kPure;
  bool variadic = false;
  const char* packed = nullptr;
  std::shared_ptr<const LayoutRule> layout = nullptr;
  std::vector<std::pair<const char*, const char*>> exceptions = {};
};

template <typename A = NoAttrs>
OpDef Define(OpRecord<A> r) {
  auto decode = [members = r.attrs](const ir::Attrs& attrs) {
    A a{};
    for (const AttrMember<A>& m : members) m.set(attrs->values[m.field.name], &a);
    return a;
  };
  OpDef def;
  def.name = r.name;
  def.doc = r.doc;
  def.args = std::move(r.args);
  for (const AttrMember<A>& m : r.attrs) def.attrs.push_back(m.field);
  if (r.type)
    def.type = [f = r.type, decode](TypeCtx& c, const ir::Attrs& attrs) {
      return f(c, decode(attrs));
    };
  if (r.compute) {
    def.compute = [f = r.compute, decode](const ComputeArgs& in, const ir::Attrs& attrs) {
      return f(in, decode(attrs));
    };
  }
  if (r.decompose) {
    def.decompose = [f = r.decompose, decode](ir::BlockBuilder& b, const Call& call,
                                              const ir::Attrs& attrs) {
      return f(b, call, decode(attrs));
    };
  }
  def.normalize = std::move(r.normalize);
  def.effect = r.effect;
  def.variadic = r.variadic;
  def.packed = r.packed;
  def.layout = std::move(r.layout);
  def.reference = r.reference;
  def.samples = std::move(r.samples);
  def.exceptions = std::move(r.exceptions);
  return def;
}

// ---- the table

// The Op called `name` ("relax.add" or "add"); throws ValueError that names the nearest ones.
const ir::Op& GetOp(const std::string& name);
ffi::Optional<ir::Op> FindOp(const std::string& name);
const std::vector<ir::Op>& AllOps();  // sorted by name
const OpDef& RecordOf(const ir::OpObj* op);

// A call with checked arguments and complete attributes (defaults filled in).  `attrs` may leave
// out optional ones.
Call MakeCall(const std::string& name, ffi::Array<Expr> args,
              const ffi::Map<ffi::String, ffi::Any>& attrs = {});
// The attributes of `call` as the struct of its record.
template <typename A>
A AttrsAs(const Call& call, const std::vector<AttrMember<A>>& members) {
  A a{};
  for (const AttrMember<A>& m : members) m.set(call->attrs->values[m.field.name], &a);
  return a;
}

// A TypeContext over arith::Analyzer; one per thread and pass.
std::unique_ptr<ir::TypeContext> MakeTypeContext();

}  // namespace relaxvm::ops
