// SPDX-License-Identifier: Apache-2.0
// Patterns, matching and rewriting for Python.
#include "analysis/pattern.h"

#include <tvm/ffi/reflection/registry.h>

#include <utility>

#include "api/register.h"
#include "passes/rewrite/rewrite.h"

namespace relaxvm::api {

namespace ffi = tvm::ffi;
namespace refl = tvm::ffi::reflection;
using analysis::Pattern;
using analysis::PatternObj;
using ir::Expr;
using ir::Var;

namespace {

using Bindings = ffi::Optional<ffi::Map<Var, Expr>>;

ffi::Optional<ffi::Map<Pattern, Expr>> ExtractMatched(Pattern pattern, Expr e, Bindings bindings) {
  analysis::VarValues values;
  if (bindings) values = analysis::ValuesOf(bindings.value());
  analysis::PatternMatcher matcher(values);
  if (!matcher.Match(pattern.get(), e)) return std::nullopt;
  return matcher.Found(true);
}

// A graph as lists: nodes; [from, to, only, index] each; groups of equal shapes.
analysis::PatternGraph GraphOf(const ffi::Array<Pattern>& nodes,
                               const ffi::Array<ffi::Array<ffi::Any>>& edges,
                               const ffi::Array<ffi::Array<Pattern>>& same_shape) {
  analysis::PatternGraph graph;
  for (const Pattern& p : nodes) graph.nodes.push_back(p.get());
  for (const auto& e : edges) {
    graph.edges.push_back({e[0].cast<Pattern>().get(), e[1].cast<Pattern>().get(),
                           e[2].cast<bool>(), e[3].cast<int64_t>()});
  }
  for (const auto& group : same_shape) {
    std::vector<const PatternObj*> members;
    for (const Pattern& p : group) members.push_back(p.get());
    graph.same_shape.push_back(std::move(members));
  }
  return graph;
}

// Rules for Python: the pattern is None when the rule came from a module.
class RulesObj : public ffi::Object {
 public:
  std::vector<passes::RewriteRule> rules;
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.relax.dpl.Rules", RulesObj, ffi::Object);
};
class Rules : public ffi::ObjectRef {
 public:
  explicit Rules(std::vector<passes::RewriteRule> rules) : ffi::ObjectRef(ffi::UnsafeInit{}) {
    auto n = ffi::make_object<RulesObj>();
    n->rules = std::move(rules);
    data_ = std::move(n);
  }
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(Rules, ffi::ObjectRef, RulesObj);
};

Rules RulesFromFunction(Pattern pattern, ffi::Function make) {
  auto replace = [make](const Expr& value, const analysis::PatternMatcher& matched) -> Expr {
    ffi::Any made = make(value, matched.Found(true));
    return made == nullptr ? Expr() : made.cast<Expr>();
  };
  return Rules({{pattern, replace}});
}

ffi::ObjectRef Rewrite(Rules rules, ffi::ObjectRef target) {
  if (auto mod = target.as<ir::IRModule>()) return passes::RewriteModule(*mod, rules->rules);
  auto func = target.as<ir::Function>();
  if (!func) {
    Fail(ErrorKind::kTypeError,
         "a rewriter takes a module or a function of the graph language, "
         "got ",
         target->GetTypeKey());
  }
  return passes::RewriteFunction(*func, rules->rules);
}

}  // namespace

void RegisterPatterns() {
  refl::ObjectDef<PatternObj>(refl::init(false))
      .def_ro("_kind", &PatternObj::kind)
      .def_ro("_parts", &PatternObj::parts)
      .def_ro("_name", &PatternObj::name)
      .def_ro("_value", &PatternObj::value)
      .def_ro("_number", &PatternObj::number);
  refl::ObjectDef<RulesObj>(refl::init(false));
  refl::GlobalDef()
      .def("relaxvm.relax.dpl.Pattern",
           [](int64_t kind, ffi::Array<ffi::ObjectRef> parts, ffi::Any value, ffi::String name,
              int64_t number) {
             return Pattern(static_cast<analysis::PatternKind>(kind), std::move(parts),
                            std::move(value), std::move(name), number);
           })
      .def("relaxvm.relax.dpl.Extract", ExtractMatched)
      .def("relaxvm.relax.dpl.MatchBlock",
           [](ffi::Array<Pattern> nodes, ffi::Array<ffi::Array<ffi::Any>> edges,
              ffi::Array<ffi::Array<Pattern>> same_shape, ir::BindingBlock block) {
             return analysis::MatchGraph(GraphOf(nodes, edges, same_shape), block);
           })
      .def("relaxvm.relax.dpl.RewriteBindings",
           [](ffi::Array<Pattern> nodes, ffi::Array<ffi::Array<ffi::Any>> edges,
              ffi::Array<ffi::Array<Pattern>> same_shape, ffi::Function rewriter,
              ir::Function func) {
             auto call = [rewriter](const ffi::Map<Pattern, Expr>& matched,
                                    const ffi::Map<Var, Expr>& values) {
               return rewriter(matched, values).cast<ffi::Map<Var, Expr>>();
             };
             return passes::RewriteBindings(GraphOf(nodes, edges, same_shape), call, func);
           })
      .def("relaxvm.relax.dpl.RulesFromFunction", RulesFromFunction)
      .def("relaxvm.relax.dpl.RulesFromModule",
           [](ir::IRModule mod) { return Rules({passes::RuleFromModule(mod)}); })
      .def("relaxvm.relax.dpl.JoinRules",
           [](Rules a, Rules b) {
             std::vector<passes::RewriteRule> all = a->rules;
             all.insert(all.end(), b->rules.begin(), b->rules.end());
             return Rules(std::move(all));
           })
      .def("relaxvm.relax.dpl.Rewrite", Rewrite);
}

}  // namespace relaxvm::api
