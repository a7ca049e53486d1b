// SPDX-License-Identifier: Apache-2.0
// Patterns over expressions (relax.dpl): trees of nodes that a program's values are compared with.
// A node that stands in several places of a pattern must match the same value in all of them.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "ir/module.h"
#include "ir/op.h"

namespace relaxvm::analysis {

namespace ffi = tvm::ffi;

enum class PatternKind : int64_t {
  kWildcard,
  kExpr,         // value: the expression itself
  kVar,          // name, or any
  kDataflowVar,  // name, or any
  kGlobalVar,    // name, or any
  kConstant,
  kExternFunc,      // name, or any
  kCall,            // parts: callee, arguments; number = 1: more arguments may follow
  kPrimArr,         // value: Array of scalars, the dimensions of a shape value
  kFunction,        // parts: body, parameters
  kTuple,           // parts: fields
  kUnorderedTuple,  // parts: fields, in any order
  kTupleGetItem,    // parts: tuple; number: index, -1 for any
  kAnd,             // parts: two
  kOr,              // parts: two
  kNot,             // parts: one
  kType,            // parts: one; value: the type that the value must have
  kShape,           // parts: one; value: Array of scalars
  kDataType,        // parts: one; value: element type
  kAttr,            // parts: one; value: Map of attributes
};

class PatternObj : public ffi::Object {
 public:
  int64_t kind = 0;
  ffi::Array<ffi::ObjectRef> parts;
  ffi::String name;
  ffi::Any value;
  int64_t number = -1;

  PatternKind Kind() const { return static_cast<PatternKind>(kind); }
  const PatternObj* part(size_t i) const { return static_cast<const PatternObj*>(parts[i].get()); }
  static constexpr uint32_t _type_child_slots = 0;
  TVM_FFI_DECLARE_OBJECT_INFO("relaxvm.relax.dpl.DFPattern", PatternObj, ffi::Object);
};
class Pattern : public ffi::ObjectRef {
 public:
  Pattern(PatternKind kind, ffi::Array<ffi::ObjectRef> parts, ffi::Any value = nullptr,
          ffi::String name = "", int64_t number = -1);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(Pattern, ffi::ObjectRef, PatternObj);
};

// A node that stands for a computed value: a call, a tuple or an item of one.
bool MatchesComputation(const PatternObj* pattern);

using VarValues = std::unordered_map<const ffi::Object*, ir::Expr>;
VarValues ValuesOf(const ffi::Map<ir::Var, ir::Expr>& values);

// Compares with backtracking: alternatives and unordered tuples are tried until the whole fits.
class PatternMatcher {
 public:
  using Then = std::function<bool()>;
  // `values`: what variables are bound to, as far as a match may look through them; outlives this.
  explicit PatternMatcher(const VarValues& values);
  ~PatternMatcher();

  // True when `pattern` fits `e` and `then` accepts what was matched so far.
  bool Match(const PatternObj* pattern, const ir::Expr& e, const Then& then);
  bool Match(const PatternObj* pattern, const ir::Expr& e) {
    return Match(pattern, e, [] { return true; });
  }

  // What each node matched, as it stood there: a variable rather than its value.
  const std::unordered_map<const PatternObj*, ir::Expr>& found() const { return found_; }
  // The same as a map; calls and items of tuples as `values` knows them when `look_through`.
  ffi::Map<Pattern, ir::Expr> Found(bool look_through) const;
  // Symbolic variables of the patterns' types and what they were matched with.
  const ffi::Map<ir::Var, ir::Expr>& sizes() const { return sizes_; }
  ir::Expr LookThrough(ir::Expr e) const;

 private:
  bool MatchNode(const PatternObj* p, const ir::Expr& e, const Then& then);
  bool MatchCall(const PatternObj* p, const ir::Expr& value, const Then& then);
  bool MatchFunction(const PatternObj* p, const ir::Expr& value, const Then& then);
  bool MatchUnordered(const PatternObj* p, size_t i, const ffi::Array<ir::Expr>& fields,
                      std::vector<bool>* taken, const Then& then);
  bool MatchAll(const PatternObj* p, size_t first, size_t i, const ffi::Array<ir::Expr>& exprs,
                const Then& then);
  bool FitsSizes(const ir::Type& wanted, const ir::Type& type);
  bool FitsDims(const ffi::Array<ir::Expr>& wanted, const ffi::Array<ir::Expr>& dims);
  bool Same(const ir::Expr& a, const ir::Expr& b) const;

  const VarValues& values_;
  VarValues inner_;  // of functions that are being matched
  std::unordered_map<const PatternObj*, ir::Expr> found_;
  ffi::Map<ir::Var, ir::Expr> sizes_;
  std::unique_ptr<ir::TypeContext> facts_;
  int64_t steps_ = 0;
};

// Are two values of attributes the same?  Numbers by value, element types also by name.
bool SameAttr(const ffi::Any& a, const ffi::Any& b);

// One pattern's variable is used by another's value.
struct PatternEdge {
  const PatternObj* from;
  const PatternObj* to;
  bool only;      // nobody else in the block uses it
  int64_t index;  // which argument it is; -1 for any
};
struct PatternGraph {
  std::vector<const PatternObj*> nodes;  // each matches a variable of its own
  std::vector<PatternEdge> edges;
  std::vector<std::vector<const PatternObj*>> same_shape;
};
// Variables of the block (or read by it) that satisfy the whole graph; absent when there are none.
ffi::Optional<ffi::Map<Pattern, ir::Expr>> MatchGraph(const PatternGraph& graph,
                                                      const ir::BindingBlock& block);

}  // namespace relaxvm::analysis
