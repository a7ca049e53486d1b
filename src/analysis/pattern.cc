// SPDX-License-Identifier: Apache-2.0
#include "analysis/pattern.h"

#include <utility>

#include "ir/visitor.h"
#include "ops/op_def.h"

namespace relaxvm::analysis {
namespace {

using ir::Expr;

// Patterns of people are small; what exceeds this has too many alternatives to be tried.
constexpr int64_t kMaxSteps = 2'000'000;

bool NameFits(const ffi::String& wanted, const ffi::String& name) {
  return wanted.empty() || wanted == name;
}

ffi::Optional<ffi::Any> AttrOf(const Expr& value, const ffi::String& name) {
  if (auto* call = value.as<ir::CallObj>()) {
    if (!call->attrs.defined() || !call->attrs->values.count(name)) return std::nullopt;
    return call->attrs->values[name];
  }
  if (auto* func = value.as<ir::BaseFuncObj>()) {
    if (!func->attrs.count(name)) return std::nullopt;
    return func->attrs[name];
  }
  return std::nullopt;
}

ffi::Optional<ffi::Array<Expr>> DimsOf(const ir::Type& type) {
  if (!type.defined()) return std::nullopt;
  if (auto* tensor = type.as<ir::TensorTypeObj>()) return tensor->GetShape();
  return std::nullopt;
}

DLDataType DtypeOf(const ir::Type& type) {
  if (!type.defined()) return Void();
  if (auto* tensor = type.as<ir::TensorTypeObj>()) return tensor->dtype;
  if (auto* prim = type.as<ir::PrimTypeObj>()) return prim->dtype;
  return Void();
}

}  // namespace

Pattern::Pattern(PatternKind kind, ffi::Array<ffi::ObjectRef> parts, ffi::Any value,
                 ffi::String name, int64_t number)
    : ffi::ObjectRef(ffi::UnsafeInit{}) {
  auto n = ffi::make_object<PatternObj>();
  n->kind = static_cast<int64_t>(kind);
  n->parts = std::move(parts);
  n->value = std::move(value);
  n->name = std::move(name);
  n->number = number;
  data_ = std::move(n);
}

bool MatchesComputation(const PatternObj* pattern) {
  switch (pattern->Kind()) {
    case PatternKind::kCall:
    case PatternKind::kTuple:
    case PatternKind::kUnorderedTuple:
    case PatternKind::kTupleGetItem: return true;
    case PatternKind::kAttr:
    case PatternKind::kType:
    case PatternKind::kShape:
    case PatternKind::kDataType: return MatchesComputation(pattern->part(0));
    case PatternKind::kAnd:
      return MatchesComputation(pattern->part(0)) || MatchesComputation(pattern->part(1));
    case PatternKind::kOr:
      return MatchesComputation(pattern->part(0)) && MatchesComputation(pattern->part(1));
    case PatternKind::kWildcard:
    case PatternKind::kExpr:
    case PatternKind::kVar:
    case PatternKind::kDataflowVar:
    case PatternKind::kGlobalVar:
    case PatternKind::kConstant:
    case PatternKind::kExternFunc:
    case PatternKind::kPrimArr:
    case PatternKind::kFunction:
    case PatternKind::kNot: return false;
  }
  return false;
}

VarValues ValuesOf(const ffi::Map<ir::Var, Expr>& values) {
  VarValues out;
  for (const auto& [var, value] : values) out.emplace(var.get(), value);
  return out;
}

bool SameAttr(const ffi::Any& a, const ffi::Any& b) {
  auto number = [](const ffi::Any& v) -> std::optional<double> {
    if (v == nullptr) return std::nullopt;
    if (auto b = v.as<bool>()) return b.value() ? 1 : 0;
    if (auto i = v.as<int64_t>()) return static_cast<double>(i.value());
    if (auto f = v.as<double>()) return f.value();
    if (auto e = v.as<Expr>()) {
      if (auto i = ir::AsInt(e.value())) return static_cast<double>(i.value());
    }
    return std::nullopt;
  };
  auto x = number(a), y = number(b);
  if (x || y) return x == y;
  auto text = [](const ffi::Any& v) -> std::optional<std::string> {
    if (v == nullptr) return std::nullopt;
    if (auto s = v.as<ffi::String>()) return std::string(s.value());
    if (auto d = v.as<DLDataType>()) return DTypeName(d.value());
    return std::nullopt;
  };
  auto s = text(a), t = text(b);
  if (s || t) return s == t;
  if (a == nullptr || b == nullptr) return a == nullptr && b == nullptr;
  auto list = a.as<ffi::Array<ffi::Any>>(), other = b.as<ffi::Array<ffi::Any>>();
  if (list && other) {
    if (list.value().size() != other.value().size()) return false;
    for (size_t i = 0; i < list.value().size(); ++i) {
      if (!SameAttr(list.value()[i], other.value()[i])) return false;
    }
    return true;
  }
  return ir::StructuralEqual(a, b);
}

PatternMatcher::PatternMatcher(const VarValues& values)
    : values_(values), facts_(ops::MakeTypeContext()) {}
PatternMatcher::~PatternMatcher() = default;

Expr PatternMatcher::LookThrough(Expr e) const {
  for (;;) {
    Expr next;
    if (e.as<ir::VarObj>()) {
      auto it = inner_.find(e.get());
      if (it != inner_.end()) {
        next = it->second;
      } else if (auto at = values_.find(e.get()); at != values_.end()) {
        next = at->second;
      }
    } else if (auto* item = e.as<ir::TupleGetItemObj>()) {
      Expr tuple = LookThrough(item->tuple_value);
      if (auto* fields = tuple.as<ir::TupleObj>()) next = fields->fields[item->index];
    }
    if (!next.defined()) return e;
    e = next;
  }
}

ffi::Map<Pattern, Expr> PatternMatcher::Found(bool look_through) const {
  ffi::Map<Pattern, Expr> out;
  for (const auto& [p, e] : found_) {
    const bool value = look_through && MatchesComputation(p);
    out.Set(ffi::GetRef<Pattern>(p), value ? LookThrough(e) : e);
  }
  return out;
}

bool PatternMatcher::Same(const Expr& a, const Expr& b) const {
  if (a.same_as(b)) return true;
  Expr x = LookThrough(a), y = LookThrough(b);
  if (x.same_as(y)) return true;
  // Leaves that are written several times; two calls are two values.
  const bool leaf = !x.as<ir::CallObj>() && !x.as<ir::VarObj>() && !x.as<ir::FunctionObj>() &&
                    !x.as<ir::IfObj>() && !x.as<ir::SeqExprObj>();
  return leaf && ir::StructuralEqual(x, y);
}

bool PatternMatcher::Match(const PatternObj* p, const Expr& e, const Then& then) {
  if (!e.defined() || ++steps_ > kMaxSteps) return false;
  if (auto it = found_.find(p); it != found_.end()) return Same(it->second, e) && then();
  return MatchNode(p, e, [&] {
    found_[p] = e;
    if (then()) return true;
    found_.erase(p);
    return false;
  });
}

bool PatternMatcher::MatchAll(const PatternObj* p, size_t first, size_t i,
                              const ffi::Array<Expr>& exprs, const Then& then) {
  if (first + i == p->parts.size()) return then();
  return Match(p->part(first + i), exprs[i],
               [&, i] { return MatchAll(p, first, i + 1, exprs, then); });
}

bool PatternMatcher::MatchUnordered(const PatternObj* p, size_t i, const ffi::Array<Expr>& fields,
                                    std::vector<bool>* taken, const Then& then) {
  if (i == p->parts.size()) return then();
  for (size_t j = 0; j < fields.size(); ++j) {
    if ((*taken)[j]) continue;
    (*taken)[j] = true;
    if (Match(p->part(i), fields[j],
              [&] { return MatchUnordered(p, i + 1, fields, taken, then); })) {
      return true;
    }
    (*taken)[j] = false;
  }
  return false;
}

bool PatternMatcher::MatchCall(const PatternObj* p, const Expr& value, const Then& then) {
  auto* call = value.as<ir::CallObj>();
  if (call == nullptr) return false;
  const size_t wanted = p->parts.size() - 1;
  if (call->args.size() < wanted || (call->args.size() > wanted && p->number != 1)) return false;
  return Match(p->part(0), call->op, [&] { return MatchAll(p, 1, 0, call->args, then); });
}

bool PatternMatcher::MatchFunction(const PatternObj* p, const Expr& value, const Then& then) {
  auto* func = value.as<ir::FunctionObj>();
  if (func == nullptr || func->params.size() + 1 != p->parts.size()) return false;
  for (const ir::BindingBlock& block : func->body->blocks) {
    for (const ir::Binding& b : block->bindings) inner_.emplace(b->var.get(), b->value);
  }
  ffi::Array<Expr> params(func->params.begin(), func->params.end());
  return MatchAll(p, 1, 0, params, [&] { return Match(p->part(0), func->body->body, then); });
}

bool PatternMatcher::FitsDims(const ffi::Array<Expr>& wanted, const ffi::Array<Expr>& dims) {
  if (wanted.size() != dims.size()) return false;
  for (size_t i = 0; i < dims.size(); ++i) {
    auto var = wanted[i].as<ir::Var>();
    if (var && !sizes_.count(*var)) {
      sizes_.Set(*var, dims[i]);
      continue;
    }
    if (!facts_->ProveEqual(ir::Substitute(wanted[i], sizes_), dims[i])) return false;
  }
  return true;
}

// Binds the symbolic variables of `wanted`; everything known must agree.
bool PatternMatcher::FitsSizes(const ir::Type& wanted, const ir::Type& type) {
  if (auto* tuple = wanted.as<ir::TupleTypeObj>()) {
    auto* have = type.as<ir::TupleTypeObj>();
    if (have == nullptr || have->fields.size() != tuple->fields.size()) return false;
    for (size_t i = 0; i < tuple->fields.size(); ++i) {
      if (!FitsSizes(tuple->fields[i], have->fields[i])) return false;
    }
    return true;
  }
  if (auto* tensor = wanted.as<ir::TensorTypeObj>()) {
    auto want = tensor->GetShape();
    if (!want) return true;
    auto have = DimsOf(type);
    return have && FitsDims(want.value(), have.value());
  }
  if (auto* shape = wanted.as<ir::ShapeTypeObj>()) {
    if (!shape->values) return true;
    auto* have = type.as<ir::ShapeTypeObj>();
    return have != nullptr && have->values && FitsDims(shape->values.value(), have->values.value());
  }
  return true;
}

bool PatternMatcher::MatchNode(const PatternObj* p, const Expr& e, const Then& then) {
  const Expr value = LookThrough(e);
  switch (p->Kind()) {
    case PatternKind::kWildcard: return then();
    case PatternKind::kExpr: {
      Expr wanted = p->value.cast<Expr>();
      const bool fits = e.same_as(wanted) || value.same_as(wanted) ||
                        (!wanted.as<ir::VarObj>() && ir::StructuralEqual(wanted, value));
      return fits && then();
    }
    case PatternKind::kVar: {
      auto* var = e.as<ir::VarObj>();
      return var != nullptr && NameFits(p->name, var->name) && then();
    }
    case PatternKind::kDataflowVar: {
      auto* var = e.as<ir::DataflowVarObj>();
      return var != nullptr && NameFits(p->name, var->name) && then();
    }
    case PatternKind::kGlobalVar: {
      auto* var = value.as<ir::GlobalVarObj>();
      return var != nullptr && NameFits(p->name, var->name_hint) && then();
    }
    case PatternKind::kConstant: return value.as<ir::ConstantObj>() != nullptr && then();
    case PatternKind::kExternFunc: {
      auto* func = value.as<ir::ExternFuncObj>();
      return func != nullptr && NameFits(p->name, func->global_symbol) && then();
    }
    case PatternKind::kCall: return MatchCall(p, value, then);
    case PatternKind::kPrimArr: {
      auto* shape = value.as<ir::ShapeExprObj>();
      if (shape == nullptr) return false;
      auto before = sizes_;
      if (FitsDims(p->value.cast<ffi::Array<Expr>>(), shape->values) && then()) return true;
      sizes_ = before;
      return false;
    }
    case PatternKind::kFunction: return MatchFunction(p, value, then);
    case PatternKind::kTuple: {
      auto* tuple = value.as<ir::TupleObj>();
      return tuple != nullptr && tuple->fields.size() == p->parts.size() &&
             MatchAll(p, 0, 0, tuple->fields, then);
    }
    case PatternKind::kUnorderedTuple: {
      auto* tuple = value.as<ir::TupleObj>();
      if (tuple == nullptr || tuple->fields.size() != p->parts.size()) return false;
      std::vector<bool> taken(tuple->fields.size(), false);
      return MatchUnordered(p, 0, tuple->fields, &taken, then);
    }
    case PatternKind::kTupleGetItem: {
      // An item of a tuple that is written out is the field itself: the binding still says item.
      Expr item = e;
      if (e.as<ir::VarObj>()) {
        auto it = values_.find(e.get());
        if (it != values_.end()) item = it->second;
        if (auto in = inner_.find(e.get()); in != inner_.end()) item = in->second;
      }
      auto* get = item.as<ir::TupleGetItemObj>();
      if (get == nullptr) get = value.as<ir::TupleGetItemObj>();
      return get != nullptr && (p->number < 0 || p->number == get->index) &&
             Match(p->part(0), get->tuple_value, then);
    }
    case PatternKind::kAnd: return Match(p->part(0), e, [&] { return Match(p->part(1), e, then); });
    case PatternKind::kOr: return Match(p->part(0), e, then) || Match(p->part(1), e, then);
    case PatternKind::kNot: {
      auto before = found_;
      const bool rejected = Match(p->part(0), e, [] { return true; });
      found_ = std::move(before);
      return !rejected && then();
    }
    case PatternKind::kType: {
      ir::Type wanted = p->value.cast<ir::Type>();
      if (!e->ty.defined()) return false;
      auto before = sizes_;
      const bool fits =
          FitsSizes(wanted, e->ty) &&
          ir::FitsType(ir::Substitute(wanted, sizes_), e->ty, *facts_) == ir::TypeFit::kAlways;
      if (fits && Match(p->part(0), e, then)) return true;
      sizes_ = before;
      return false;
    }
    case PatternKind::kShape: {
      auto dims = DimsOf(e->ty);
      if (!dims) return false;
      auto before = sizes_;
      if (FitsDims(p->value.cast<ffi::Array<Expr>>(), dims.value()) && Match(p->part(0), e, then))
        return true;
      sizes_ = before;
      return false;
    }
    case PatternKind::kDataType: {
      const DLDataType wanted = p->value.cast<DLDataType>();
      return DtypeOf(e->ty) == wanted && Match(p->part(0), e, then);
    }
    case PatternKind::kAttr: {
      for (const auto& [name, wanted] : p->value.cast<ffi::Map<ffi::String, ffi::Any>>()) {
        auto have = AttrOf(value, name);
        if (!have || !SameAttr(wanted, have.value())) return false;
      }
      return Match(p->part(0), e, then);
    }
  }
  RELAXVM_UNREACHABLE();
}

}  // namespace relaxvm::analysis
