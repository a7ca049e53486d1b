// SPDX-License-Identifier: Apache-2.0
// The table of all operators, built from op_list.def on first use, and the maker of calls.
#include <tvm/ffi/cast.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_map>

#include "ir/prim.h"
#include "ops/op_def.h"
#include "ops/open_op.h"

namespace relaxvm::ops {

#define OP(function) OpDef function();
#define OPS(function) std::vector<OpDef> function();
#include "ops/op_list.def"
#undef OP
#undef OPS

namespace {

constexpr const char* kPrefix = "relax.";

std::vector<OpDef> AllRecords() {
  std::vector<OpDef> records;
#define OP(function) records.push_back(function());
#define OPS(function) \
  for (OpDef& def : function()) records.push_back(std::move(def));
#include "ops/op_list.def"
#undef OP
#undef OPS
  std::sort(records.begin(), records.end(),
            [](const OpDef& a, const OpDef& b) { return a.name < b.name; });
  return records;
}

size_t NumRequired(const OpDef& def) {
  return std::count_if(def.args.begin(), def.args.end(),
                       [](const ArgDoc& a) { return !a.optional; });
}

void CheckNumArgs(const OpDef& def, const SourcePlace& place, size_t given) {
  if (def.variadic) return;
  size_t least = NumRequired(def);
  if (given >= least && given <= def.args.size()) return;
  std::string names;
  for (const ArgDoc& a : def.args) {
    names += (names.empty() ? "" : ", ") + std::string(a.name) + (a.optional ? "?" : "");
  }
  Fail(ErrorKind::kTypeError, place, def.name, ": takes (", names, "), got ", given,
       given == 1 ? " argument" : " arguments");
}

ir::Op MakeOp(const OpDef& def) {
  auto op = ffi::make_object<ir::OpObj>();
  op->name = kPrefix + def.name;
  op->description = def.doc;
  op->num_inputs = def.variadic ? -1 : static_cast<int64_t>(def.args.size());
  op->effect = def.effect;
  op->type_rule = [&def](const Call& call, ir::TypeContext& facts) {
    CheckNumArgs(def, call->span.Place(), call->args.size());
    TypeCtx ctx(call, def, facts);
    return def.type(ctx, call->attrs);
  };
  op->normalize = def.normalize;
  op->record = &def;
  return ffi::GetRef<ir::Op>(op.get());
}

struct Table {
  std::vector<OpDef> records = AllRecords();
  std::vector<ir::Op> ops;
  std::unordered_map<std::string, size_t> by_name;  // without "relax."

  Table() {
    for (const OpDef& def : records) {
      RELAXVM_CHECK(by_name.emplace(def.name, ops.size()).second) << def.name << " stands twice";
      RELAXVM_CHECK(def.type != nullptr) << def.name << " has no type rule";
      ops.push_back(MakeOp(def));
    }
  }
};

const Table& GetTable() {
  static const Table* table = new Table();  // NOLINT: lives as long as the process
  return *table;
}

// Number of one-letter edits from `a` to `b`.
size_t Distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t up = row[j];
      row[j] = std::min({up + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = up;
    }
  }
  return row[b.size()];
}

std::string Nearest(const std::string& name) {
  std::vector<std::pair<size_t, std::string>> near;
  for (const OpDef& def : GetTable().records) {
    std::string last = def.name.substr(def.name.rfind('.') + 1);
    std::string given_last = name.substr(name.rfind('.') + 1);
    near.emplace_back(std::min(Distance(name, def.name), Distance(given_last, last)), def.name);
  }
  std::sort(near.begin(), near.end());
  std::string text;
  for (size_t i = 0; i < near.size() && i < 3; ++i) text += (i == 0 ? "" : ", ") + near[i].second;
  return text;
}

std::string WithoutPrefix(const std::string& name) {
  return name.rfind(kPrefix, 0) == 0 ? name.substr(6) : name;
}

ffi::Array<Expr> FillArguments(const OpDef& def, ffi::Array<Expr> args) {
  for (size_t i = args.size(); i < def.args.size(); ++i) {
    const ffi::Any& value = def.args[i].default_value;
    if (value == nullptr) break;
    if (value.type_index() == ffi::TypeIndex::kTVMFFIBool) {
      args.push_back(ir::BoolImm(value.cast<bool>()));
    } else if (value.type_index() == ffi::TypeIndex::kTVMFFIInt) {
      args.push_back(Expr(value.cast<int64_t>()));
    } else if (auto text = value.as<ffi::String>()) {
      args.push_back(ir::StringImm(*text));
    } else {
      args.push_back(ir::FloatImm(Float(64), value.cast<double>()));
    }
  }
  return args;
}

void CheckAttrNames(const OpDef& def, const SourcePlace& place,
                    const ffi::Map<ffi::String, ffi::Any>& attrs) {
  for (const auto& [name, value] : attrs) {
    bool known = std::any_of(def.attrs.begin(), def.attrs.end(),
                             [&name = name](const AttrField& f) { return name == f.name; });
    if (known) continue;
    std::string names;
    for (const AttrField& f : def.attrs) names += (names.empty() ? "" : ", ") + std::string(f.name);
    Fail(ErrorKind::kTypeError, place, def.name, ": no attribute ", std::string(name),
         names.empty() ? "; it has none" : "; there are: ", names);
  }
  for (const AttrField& f : def.attrs) {
    if (f.required && attrs.count(f.name) == 0) {
      Fail(ErrorKind::kTypeError, place, def.name, ": attribute ", f.name, " must be given");
    }
  }
}

// Operators that programs outside of this library defined.  They live as long as the process.
struct OpenTable {
  std::mutex mutex;
  std::map<std::string, std::pair<OpDef*, ir::Op>> ops;
};
OpenTable& GetOpenTable() {
  static OpenTable* table = new OpenTable();  // NOLINT
  return *table;
}

ffi::Optional<ir::Op> FindOpen(const std::string& name) {
  OpenTable& table = GetOpenTable();
  std::lock_guard<std::mutex> lock(table.mutex);
  auto it = table.ops.find(name);
  if (it == table.ops.end()) return std::nullopt;
  return it->second.second;
}

}  // namespace

OpenOp OpenOperator(const std::string& name) {
  const Table& known = GetTable();
  if (known.by_name.count(WithoutPrefix(name)) != 0) return {};
  OpenTable& table = GetOpenTable();
  std::lock_guard<std::mutex> lock(table.mutex);
  auto it = table.ops.find(name);
  if (it == table.ops.end()) {
    auto* def = new OpDef();  // NOLINT: the operator points to it
    def->name = name;
    def->variadic = true;
    def->complete = [](const ir::Attrs& given) { return given; };
    auto op = ffi::make_object<ir::OpObj>();
    op->name = name;
    op->num_inputs = -1;
    op->type_rule = [def](const Call& call, ir::TypeContext& facts) -> Type {
      if (!def->type) {
        Fail(ErrorKind::kValueError, call->span.Place(), def->name,
             " has no type rule; register_op_attr(\"", def->name, "\", \"FInferType\", ...)");
      }
      TypeCtx ctx(call, *def, facts);
      return def->type(ctx, call->attrs);
    };
    op->record = def;
    it = table.ops.emplace(name, std::make_pair(def, ffi::GetRef<ir::Op>(op.get()))).first;
  }
  return {it->second.first, const_cast<ir::OpObj*>(it->second.second.get())};
}

namespace {

struct LegalizeTable {
  std::mutex mutex;
  std::map<std::string, LegalizeRule> rules;
};
LegalizeTable& GetLegalizeTable() {
  static LegalizeTable* table = new LegalizeTable();  // NOLINT
  return *table;
}

}  // namespace

LegalizeRule LegalizeRuleOf(const ffi::Function& f) {
  return [f](const Call& call, const ir::IRModule& mod, bool dataflow) {
    auto parts = f(call, mod, dataflow).cast<ffi::Array<ffi::Any>>();
    return Lowered{parts[0].cast<ir::BindingBlock>(), parts[1].cast<Expr>(),
                   parts[2].cast<ir::IRModule>()};
  };
}

void SetLegalizeRule(const std::string& op, LegalizeRule rule) {
  LegalizeTable& table = GetLegalizeTable();
  std::lock_guard<std::mutex> lock(table.mutex);
  if (rule) {
    table.rules[op] = std::move(rule);
  } else {
    table.rules.erase(op);
  }
}

LegalizeRule FindLegalizeRule(const std::string& op) {
  LegalizeTable& table = GetLegalizeTable();
  std::lock_guard<std::mutex> lock(table.mutex);
  auto it = table.rules.find(op);
  return it == table.rules.end() ? LegalizeRule() : it->second;
}

ffi::Optional<ir::Op> FindOp(const std::string& name) {
  const Table& table = GetTable();
  auto it = table.by_name.find(WithoutPrefix(name));
  if (it == table.by_name.end()) return FindOpen(name);
  return table.ops[it->second];
}

const ir::Op& GetOp(const std::string& name) {
  const Table& table = GetTable();
  auto it = table.by_name.find(WithoutPrefix(name));
  if (it == table.by_name.end()) {
    if (ffi::Optional<ir::Op> open = FindOpen(name)) {
      OpenTable& others = GetOpenTable();
      std::lock_guard<std::mutex> lock(others.mutex);
      return others.ops.at(name).second;
    }
    Fail(ErrorKind::kValueError, "there is no operator ", name,
         "; nearest: ", Nearest(WithoutPrefix(name)));
  }
  return table.ops[it->second];
}

const std::vector<ir::Op>& AllOps() { return GetTable().ops; }

const OpDef& RecordOf(const ir::OpObj* op) {
  RELAXVM_CHECK(op->record != nullptr) << std::string(op->name);
  return *static_cast<const OpDef*>(op->record);
}

Call MakeCall(const std::string& name, ffi::Array<Expr> args,
              const ffi::Map<ffi::String, ffi::Any>& attrs, ffi::Array<Type> ty_args,
              ir::Span span) {
  const ir::Op& op = GetOp(name);
  const OpDef& def = RecordOf(op.get());
  SourcePlace place = span.Place();
  CheckNumArgs(def, place, args.size());
  CheckAttrNames(def, place, attrs);
  Call call(op, FillArguments(def, std::move(args)), def.complete(ir::Attrs(attrs)),
            std::move(ty_args), span);
  return def.normalize ? def.normalize(call) : call;
}

}  // namespace relaxvm::ops
