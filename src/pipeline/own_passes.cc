// SPDX-License-Identifier: Apache-2.0
// Passes of pass_list.def that reach into folders which passes/ does not know: lowering/ and
// schedule/.
#include "lowering/legalize_ops.h"
#include "passes/pass.h"

namespace relaxvm::passes {

IRModule LegalizeOps(IRModule mod, const PassContext& context) {
  lowering::LegalizeOptions options;
  if (auto skip = context.options.Get("skip_ops"); skip.has_value()) {
    for (const ffi::Any& name : skip.value().cast<ffi::Array<ffi::Any>>()) {
      options.skip_ops.insert(std::string(name.cast<ffi::String>()));
    }
  }
  return lowering::LegalizeOps(std::move(mod), options);
}

IRModule ScheduleTensorPrograms(IRModule mod, const PassContext& context) { return mod; }

}  // namespace relaxvm::passes
