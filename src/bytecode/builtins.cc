// SPDX-License-Identifier: Apache-2.0
// Reads the signatures of builtin_list.def once.
#include "bytecode/builtins.h"

#include <array>
#include <unordered_map>

#include "support/error.h"

namespace relaxvm::bytecode {
namespace {

struct Row {
  std::string_view name, signature;
  Effect effect;
  std::string_view meaning;
};

constexpr Row kRows[] = {
#define BUILTIN(name, user_name, signature, effect, meaning) \
  {user_name, signature, Effect::effect, meaning},
#include "bytecode/builtin_list.def"
#undef BUILTIN
};

ParamKind KindFromName(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, ParamKind>, 13> kKinds = {{
      {"ctx", ParamKind::kCtx},
      {"int", ParamKind::kInt},
      {"number", ParamKind::kNumber},
      {"bool", ParamKind::kBool},
      {"str", ParamKind::kStr},
      {"dtype", ParamKind::kDType},
      {"shape", ParamKind::kShape},
      {"tensor", ParamKind::kTensor},
      {"storage", ParamKind::kStorage},
      {"array", ParamKind::kArray},
      {"func", ParamKind::kFunc},
      {"object", ParamKind::kObject},
      {"any", ParamKind::kAny},
  }};
  for (const auto& [text, kind] : kKinds) {
    if (text == name) return kind;
  }
  RELAXVM_CHECK(false) << "builtin_list.def: no parameter kind '" << name << "'";
  RELAXVM_UNREACHABLE();
}

// "(vm: ctx, size: shape, scope?: str, *rest: any) -> storage"
void ParseSignature(BuiltinInfo* info) {
  std::string_view list = info->signature.substr(1, info->signature.find(')') - 1);
  while (!list.empty()) {
    size_t comma = std::min(list.find(", "), list.size());
    std::string_view item = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 2, list.size()));
    size_t colon = item.find(": ");
    RELAXVM_CHECK(colon != std::string_view::npos) << "builtin_list.def: " << info->name;
    std::string_view name = item.substr(0, colon);
    ParamKind kind = KindFromName(item.substr(colon + 2));
    if (name.front() == '*') {
      info->rest = kind;
      info->max_args = -1;
      return;
    }
    bool optional = name.back() == '?';
    if (optional) name.remove_suffix(1);
    info->params.push_back({std::string(name), kind});
    info->max_args += 1;
    if (!optional) info->min_args += 1;
  }
}

const std::vector<BuiltinInfo>& Table() {
  static const std::vector<BuiltinInfo> table = [] {
    std::vector<BuiltinInfo> result;
    for (const Row& row : kRows) {
      BuiltinInfo info{static_cast<Builtin>(result.size()),
                       row.name,
                       row.signature,
                       row.effect,
                       row.meaning,
                       {}};
      ParseSignature(&info);
      info.takes_ctx = !info.params.empty() && info.params[0].kind == ParamKind::kCtx;
      result.push_back(std::move(info));
    }
    return result;
  }();
  return table;
}

}  // namespace

std::span<const BuiltinInfo> AllBuiltins() { return Table(); }

const BuiltinInfo& GetBuiltin(Builtin id) { return Table()[static_cast<size_t>(id)]; }

std::optional<Builtin> FindBuiltin(std::string_view name) {
  static const std::unordered_map<std::string_view, Builtin> index = [] {
    std::unordered_map<std::string_view, Builtin> result;
    for (const BuiltinInfo& info : Table()) result.emplace(info.name, info.id);
    return result;
  }();
  auto it = index.find(name);
  return it == index.end() ? std::nullopt : std::optional<Builtin>(it->second);
}

}  // namespace relaxvm::bytecode
