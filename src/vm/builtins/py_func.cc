// SPDX-License-Identifier: Apache-2.0
// Functions by name, for the whole process: what R.call_py_func reaches.
#include <map>
#include <mutex>

#include "vm/builtins/builtins.h"
#include "vm/virtual_machine.h"

namespace relaxvm::vm::builtins {
namespace ffi = tvm::ffi;
namespace {

struct Registry {
  std::mutex mutex;  // guards `functions`
  std::map<std::string, ffi::Function> functions;
};
Registry& Global() {
  static Registry registry;
  return registry;
}

ffi::Function Lookup(const std::string& name) {
  Registry& registry = Global();
  std::lock_guard<std::mutex> lock(registry.mutex);
  auto at = registry.functions.find(name);
  if (at == registry.functions.end()) {
    Fail(ErrorKind::kKeyError, "no Python function is registered as '", name,
         "'; register it with vm.builtin.register_py_func");
  }
  return at->second;
}

}  // namespace

void RegisterPyFunc(Args args, ffi::Any* result) {
  auto function = args.view(1).try_cast<ffi::Optional<ffi::Function>>();
  if (!function) args.WrongType(1, "a function");
  const std::string name = args.String(0);
  Registry& registry = Global();
  std::lock_guard<std::mutex> lock(registry.mutex);
  if (function->has_value()) {
    registry.functions.insert_or_assign(name, function->value());
  } else {
    registry.functions.erase(name);
  }
  *result = nullptr;
}

void GetPyFunc(Args args, ffi::Any* result) { *result = Lookup(args.String(0)); }

void CallPyFunc(Args args, ffi::Any* result) {
  auto call = args.view(0).try_cast<ffi::Array<ffi::Any>>();
  if (!call || call->size() != 2) args.WrongType(0, "an array of a name and an array of arguments");
  auto name = (*call)[0].try_cast<ffi::String>();
  auto values = (*call)[1].try_cast<ffi::Array<ffi::Any>>();
  if (!name || !values) args.WrongType(0, "an array of a name and an array of arguments");
  std::vector<ffi::AnyView> views(values->begin(), values->end());
  Lookup(std::string(*name)).CallPacked(views.data(), static_cast<int32_t>(views.size()), result);
}

void ClearPyFuncRegistry(Args, ffi::Any* result) {
  Registry& registry = Global();
  std::lock_guard<std::mutex> lock(registry.mutex);
  registry.functions.clear();
  *result = nullptr;
}

}  // namespace relaxvm::vm::builtins
