// SPDX-License-Identifier: Apache-2.0
#include "arith/same.h"

#include <functional>

#include "ir/visitor.h"

namespace relaxvm::arith {
namespace {

namespace ffi = tvm::ffi;
using ir::Expr;

bool SameAll(const ffi::Array<Expr>& a, const ffi::Array<Expr>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!SameScalar(a[i], b[i])) return false;
  }
  return true;
}

size_t Mix(size_t h, size_t v) { return (h ^ v) * 0xff51afd7ed558ccdull + (h >> 29); }

}  // namespace

bool SameScalar(const Expr& a, const Expr& b) {
  if (a.same_as(b)) return true;
  if (!a.defined() || !b.defined() || a->type_index() != b->type_index()) return false;
  if (!ir::IsPrim(a)) return ir::StructuralEqual(a, b);
  if (a.as<ir::VarObj>() || a.as<ir::CallObj>() || a.dtype() != b.dtype()) return false;
  if (auto* x = a.as<ir::IntImmObj>()) return x->value == b.as<ir::IntImmObj>()->value;
  if (auto* x = a.as<ir::BinaryObj>()) {
    auto* y = b.as<ir::BinaryObj>();
    return x->op == y->op && SameScalar(x->a, y->a) && SameScalar(x->b, y->b);
  }
  if (auto* x = a.as<ir::CastObj>()) return SameScalar(x->value, b.as<ir::CastObj>()->value);
  if (auto* x = a.as<ir::SelectObj>()) {
    auto* y = b.as<ir::SelectObj>();
    return SameScalar(x->condition, y->condition) && SameScalar(x->true_value, y->true_value) &&
           SameScalar(x->false_value, y->false_value);
  }
  if (auto* x = a.as<ir::IntrinObj>()) {
    auto* y = b.as<ir::IntrinObj>();
    return x->intrin == y->intrin && SameAll(x->args, y->args);
  }
  return ir::StructuralEqual(a, b);
}

size_t HashScalar(const Expr& e) {
  if (auto* i = e.as<ir::IntImmObj>()) return Mix(1, static_cast<size_t>(i->value));
  if (e.as<ir::VarObj>() || e.as<ir::CallObj>()) return std::hash<const void*>()(e.get());
  if (auto* b = e.as<ir::BinaryObj>()) {
    return Mix(Mix(HashScalar(b->a), HashScalar(b->b)), static_cast<size_t>(b->op) + 16);
  }
  if (auto* c = e.as<ir::CastObj>()) return Mix(HashScalar(c->value), 2);
  if (auto* s = e.as<ir::SelectObj>()) {
    return Mix(Mix(HashScalar(s->condition), HashScalar(s->true_value)),
               HashScalar(s->false_value));
  }
  if (auto* i = e.as<ir::IntrinObj>()) {
    size_t h = Mix(3, static_cast<size_t>(i->intrin));
    for (const Expr& arg : i->args) h = Mix(h, HashScalar(arg));
    return h;
  }
  return ir::StructuralHash(e);
}

}  // namespace relaxvm::arith
