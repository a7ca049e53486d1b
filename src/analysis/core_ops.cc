// SPDX-License-Identifier: Apache-2.0
// Looks the core operators up once, in both directions.
#include "analysis/core_ops.h"

#include <string>
#include <unordered_map>
#include <vector>

#include "ir/visitor.h"
#include "ops/op_def.h"

namespace relaxvm::analysis {
namespace {

struct Table {
  std::vector<ffi::Optional<ir::Op>> ops;  // by CoreOp
  std::unordered_map<const ffi::Object*, CoreOp> ids;
};

const char* NameOf(CoreOp op) {
  switch (op) {
    case CoreOp::kNone: return "";
#define CORE_OP(id, name) \
  case CoreOp::k##id: return name;
#include "analysis/core_op_list.def"
#undef CORE_OP
  }
  return "";
}

const Table& GetTable() {
  static const Table table = [] {
    Table t;
    t.ops.push_back(std::nullopt);
    auto add = [&t](CoreOp id) {
      ffi::Optional<ir::Op> op = ops::FindOp(NameOf(id));
      if (op.has_value()) t.ids[op.value().get()] = id;
      t.ops.push_back(op);
    };
#define CORE_OP(id, name) add(CoreOp::k##id);
#include "analysis/core_op_list.def"
#undef CORE_OP
    return t;
  }();
  return table;
}

}  // namespace

CoreOp CoreOpOf(const ir::Expr& callee) {
  if (!callee.as<ir::OpObj>()) return CoreOp::kNone;
  const Table& table = GetTable();
  auto it = table.ids.find(callee.get());
  return it == table.ids.end() ? CoreOp::kNone : it->second;
}

CoreOp CoreOpOfValue(const ir::Expr& value) {
  const auto* call = value.as<ir::CallObj>();
  return call ? CoreOpOf(call) : CoreOp::kNone;
}

ir::Op GetCoreOp(CoreOp op) {
  const ffi::Optional<ir::Op>& found = GetTable().ops[static_cast<size_t>(op)];
  RELAXVM_CHECK(found.has_value()) << "operator " << NameOf(op) << " has no record";
  return found.value();
}

ir::Call CallCore(CoreOp op, ffi::Array<ir::Expr> args, ir::Type type, ir::Span span) {
  return ir::Call(GetCoreOp(op), std::move(args), ir::Attrs(), {}, std::move(span),
                  std::move(type));
}

bool KillsVariables(const ir::FunctionObj* func) {
  class Finder : public ir::Visitor {
   public:
    void VisitCall(const ir::CallObj* call) override {
      CoreOp op = CoreOpOf(call);
      found = found || op == CoreOp::kKillStorage || op == CoreOp::kKillTensor ||
              op == CoreOp::kVmKillObject;
    }
    void VisitDef(const ir::Var& var) override {}
    bool found = false;
  };
  Finder finder;
  finder.VisitFunction(func);
  return finder.found;
}

}  // namespace relaxvm::analysis
