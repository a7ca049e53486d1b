// SPDX-License-Identifier: Apache-2.0
// Parameters as a module with a function `get_params`, which set_input_with_param_module of a VM
// takes.
#include <tvm/ffi/extra/module.h>

#include "vm/builtins/builtins.h"

namespace relaxvm::vm::builtins {
namespace ffi = tvm::ffi;
namespace {

class ParamModuleObj final : public ffi::ModuleObj {
 public:
  explicit ParamModuleObj(ffi::Any params) : params_(std::move(params)) {}
  const char* kind() const override { return "param_module"; }
  ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) override {
    if (name != "get_params") return std::nullopt;
    return ffi::Function::FromTyped([params = params_] { return params; });
  }

 private:
  ffi::Any params_;
};

ffi::Module ParamModule(ffi::Any params) {
  return ffi::Module(ffi::make_object<ParamModuleObj>(std::move(params)));
}

}  // namespace

// (prefix, count)
void ParamModuleFromCache(Args args, ffi::Any* result) {
  ffi::Any params;
  ParamArrayFromCache(args, &params);
  *result = ParamModule(std::move(params));
}

// (names)
void ParamModuleFromCacheByName(Args args, ffi::Any* result) {
  ffi::Any params;
  ParamArrayFromCacheByName(args, &params);
  *result = ParamModule(std::move(params));
}

}  // namespace relaxvm::vm::builtins
