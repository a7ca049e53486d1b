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
  kPrims,    // a tuple of scalar expressions, or a list of numbers and scalars
  kDtype,    // R.dtype(...), or the name of an element type
  kString,   // R.str(...), or a string
  kFunc,     // a function of the module, a closure, or the name of a packed function
  kAny,      // any expression
};

struct ArgDoc {
  const char* name;
  const char* doc;
  ArgKind kind = ArgKind::kTensor;
  bool optional = false;  // may be left out at the end of the call
  // Of a kPrim: what is passed when it is left out.  None: the call then has fewer arguments.
  ffi::Any default_value = nullptr;
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

  const Call& call() const { return call_; }
  size_t size() const { return call_->args.size(); }
  bool Has(size_t i) const { return i < size(); }
  Expr arg(size_t i) const { return call_->args[i]; }
  Type type(size_t i) const;          // inferred before the call's; error when it is missing
  TensorType Tensor(size_t i) const;  // error unless it is a tensor
  TensorType Float(size_t i) const;   // error unless a tensor of floats, or of unknown dtype
  TensorType TensorOf(size_t i, bool (*accepts)(DLDataType), const char* what) const;
  std::vector<TensorType> TensorTuple(size_t i) const;  // error unless a tuple of tensors
  // Dimensions of a tensor, or of a shape value; absent when unknown.
  std::optional<Dims> Shape(size_t i) const;
  int64_t Rank(size_t i) const;     // of a tensor, or of a shape value; -1 when unknown
  DLDataType Prim(size_t i) const;  // dtype of a scalar argument
  // `axis` counted from the front; error when out of [-ndim, ndim).  `ndim` below 0 (unknown):
  // error.
  int64_t Axis(int64_t axis, int64_t ndim) const;
  Ints Axes(const Ints& axes, int64_t ndim) const;  // the same for several; error on a repeated one
  void SameDtype(size_t i, size_t j) const;         // error when both are known and differ
  void CheckRank(size_t i, int64_t ndim) const;     // error when known and not `ndim`

  Expr Simplify(const Expr& e) const { return facts_.Simplify(e); }
  bool Equal(const Expr& a, const Expr& b) const { return facts_.ProveEqual(a, b); }
  bool Prove(const Expr& condition) const { return facts_.Prove(condition); }
  ir::TypeContext& facts() const { return facts_; }
  // The broadcast of two shapes, NumPy's rules; absent when a pair of dimensions cannot be decided;
  // error when it is surely wrong.
  std::optional<Dims> Broadcast(const Dims& a, const Dims& b) const;

  // The result's type, on the device that the tensor arguments name.  `ndim`: used without dims.
  TensorType Result(const std::optional<Dims>& dims, int64_t ndim, DLDataType dtype) const;
  TensorType Result(Dims dims, DLDataType dtype) const;
  TensorType OfShape(size_t i, DLDataType dtype) const;          // the shape that argument i is
  TensorType Like(const TensorType& x, DLDataType dtype) const;  // the shape of `x`
  TensorType Like(const TensorType& x) const { return Like(x, x->dtype); }

  template <typename... Parts>
  [[noreturn]] void Error(ErrorKind kind, const Parts&... parts) const {
    Fail(kind, Place(), Name(), ": ", parts...);
  }
  SourcePlace Place() const { return call_->span.Place(); }
  const std::string& Name() const;       // "nn.softmax"
  std::string ArgName(size_t i) const;   // "x"
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

// Short texts for messages: "Tensor((4, n), float32)", "n * 2".
std::string DescribeType(const Type& type);
std::string DescribeExpr(const Expr& e);
std::string DescribeDims(const Dims& dims);

// How operators take a layout change (passes/layout); see ops/layout_rule.h.
struct LayoutRule;

struct OpDef {
  std::string name;  // without "relax.": "nn.softmax"
  std::string doc;   // one sentence
  std::vector<ArgDoc> args;
  std::vector<AttrField> attrs;
  std::function<Type(TypeCtx&, const ir::Attrs&)> type;
  // Attributes with defaults filled in and abbreviations spelled out, in the record's order.
  std::function<ir::Attrs(const ir::Attrs& given)> complete;
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
struct AttrCodec;  // type name, to Any, from Any (absent when the value is of another type)
#define RELAXVM_ATTR_CODEC(T, text)                        \
  template <>                                              \
  struct AttrCodec<T> {                                    \
    static constexpr const char* kType = text;             \
    static ffi::Any Encode(const T& value);                \
    static std::optional<T> Decode(const ffi::Any& value); \
  }
RELAXVM_ATTR_CODEC(int64_t, "int");
RELAXVM_ATTR_CODEC(double, "float");
RELAXVM_ATTR_CODEC(bool, "bool");
RELAXVM_ATTR_CODEC(std::string, "str");
RELAXVM_ATTR_CODEC(DLDataType, "dtype");
RELAXVM_ATTR_CODEC(Ints, "ints");  // one integer stands for a list of one
RELAXVM_ATTR_CODEC(std::vector<double>, "floats");
RELAXVM_ATTR_CODEC(ffi::Any, "any");
#undef RELAXVM_ATTR_CODEC

template <typename T>
constexpr const char* OptionalTypeName() {
  if constexpr (std::is_same_v<T, int64_t>) return "int?";
  if constexpr (std::is_same_v<T, double>) return "float?";
  if constexpr (std::is_same_v<T, bool>) return "bool?";
  if constexpr (std::is_same_v<T, std::string>) return "str?";
  if constexpr (std::is_same_v<T, DLDataType>) return "dtype?";
  if constexpr (std::is_same_v<T, Ints>) return "ints?";
}
template <typename T>
struct AttrCodec<std::optional<T>> {
  static constexpr const char* kType = OptionalTypeName<T>();
  static ffi::Any Encode(const std::optional<T>& value) {
    return value ? AttrCodec<T>::Encode(*value) : ffi::Any(nullptr);
  }
  static std::optional<std::optional<T>> Decode(const ffi::Any& value) {
    if (value == nullptr) return std::optional<T>();
    std::optional<T> decoded = AttrCodec<T>::Decode(value);
    if (!decoded) return std::nullopt;
    return decoded;
  }
};

template <typename Struct>
struct AttrMember {
  AttrField field;
  std::function<bool(const ffi::Any&, Struct*)> set;  // false: the value is of another type
  std::function<ffi::Any(const Struct&)> get;

  // {"axis", &Softmax::axis, "Axis to normalise."}: the default is the member's initialiser.
  template <typename T>
  AttrMember(const char* name, T Struct::* member, const char* doc, bool required = false)
      : field{name, AttrCodec<T>::kType, doc, AttrCodec<T>::Encode(Struct{}.*member), required},
        set([member](const ffi::Any& value, Struct* s) {
          std::optional<T> decoded = AttrCodec<T>::Decode(value);
          if (decoded) s->*member = *std::move(decoded);
          return decoded.has_value();
        }),
        get([member](const Struct& s) { return AttrCodec<T>::Encode(s.*member); }) {}
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
  // Spells out abbreviated attributes (one stride for both axes); wrong ones are the type rule's.
  std::function<void(A&)> complete = nullptr;
  ir::NormalizeRule normalize = nullptr;
  Effect effect = Effect::kPure;
  bool variadic = false;
  const char* packed = nullptr;
  std::shared_ptr<const LayoutRule> layout = nullptr;
  std::vector<std::pair<const char*, const char*>> exceptions = {};
};

// Reports an attribute of the wrong type: "nn.conv2d: attribute strides must be ..., got ...".
[[noreturn]] void FailAttr(const char* op, const AttrField& field, const ffi::Any& value);

template <typename A>
struct AttrTable {
  const char* op;
  std::vector<AttrMember<A>> members;
  std::function<void(A&)> complete;

  A Decode(const ir::Attrs& attrs) const {
    A a{};
    if (!attrs.defined()) return a;
    for (const AttrMember<A>& m : members) {
      auto it = attrs->values.find(m.field.name);
      if (it == attrs->values.end()) continue;
      if (!m.set((*it).second, &a)) FailAttr(op, m.field, (*it).second);
    }
    return a;
  }
  ir::Attrs Complete(const ir::Attrs& given) const {
    if (members.empty()) return ir::Attrs();
    A a = Decode(given);
    if (complete) complete(a);
    ffi::Map<ffi::String, ffi::Any> values;
    for (const AttrMember<A>& m : members) values.Set(m.field.name, m.get(a));
    return ir::Attrs(std::move(values));
  }
};

template <typename A = NoAttrs>
OpDef Define(OpRecord<A> r) {
  OpDef def;
  for (const AttrMember<A>& m : r.attrs) def.attrs.push_back(m.field);
  auto table = std::make_shared<const AttrTable<A>>(
      AttrTable<A>{r.name, std::move(r.attrs), std::move(r.complete)});
  def.name = r.name;
  def.doc = r.doc;
  def.args = std::move(r.args);
  def.complete = [table](const ir::Attrs& given) { return table->Complete(given); };
  if (r.type) {
    def.type = [f = std::move(r.type), table](TypeCtx& c, const ir::Attrs& attrs) {
      return f(c, table->Decode(attrs));
    };
  }
  if (r.compute) {
    def.compute = [f = std::move(r.compute), table](const ComputeArgs& in, const ir::Attrs& attrs) {
      return f(in, table->Decode(attrs));
    };
  }
  if (r.decompose) {
    def.decompose = [f = std::move(r.decompose), table](ir::BlockBuilder& b, const Call& call,
                                                        const ir::Attrs& attrs) {
      return f(b, call, table->Decode(attrs));
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

// A call with checked arguments and complete attributes.  `attrs` may leave out optional ones;
// `args` may leave out optional ones at the end.
Call MakeCall(const std::string& name, ffi::Array<Expr> args,
              const ffi::Map<ffi::String, ffi::Any>& attrs = {}, ffi::Array<Type> ty_args = {},
              ir::Span span = ir::Span());
// The attribute `name` of a call, as the type that its record gives it.
template <typename T>
T AttrOf(const Call& call, const char* name) {
  std::optional<T> value = AttrCodec<T>::Decode(call->attrs.Get(name));
  RELAXVM_CHECK(value.has_value()) << name;
  return *std::move(value);
}

// A TypeContext over arith::Analyzer; one per thread and pass.
std::unique_ptr<ir::TypeContext> MakeTypeContext();

}  // namespace relaxvm::ops
