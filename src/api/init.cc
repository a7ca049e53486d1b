// SPDX-License-Identifier: Apache-2.0
// The one entry of librelaxvm: registers everything that Python sees.  Called once, right after the
// library is loaded.
#include <tvm/ffi/function.h>

#include <mutex>

#include "api/register.h"
#include "support/api.h"

extern "C" RELAXVM_API int relaxvm_init() {
  using namespace relaxvm::api;
  TVM_FFI_SAFE_CALL_BEGIN();
  static std::once_flag once;
  std::call_once(once, [] {
    RegisterTypes();
    RegisterExpressions();
    RegisterScalars();
    RegisterModules();
    RegisterTensorPrograms();
    RegisterIndexMaps();
    RegisterTensorExpressions();
    RegisterBuilder();
    RegisterOperators();
    RegisterScript();
    RegisterPatterns();
    RegisterPasses();
    RegisterPipeline();
    RegisterAnalysis();
    RegisterProgramAnalysis();
    RegisterAnalyzer();
    RegisterReprs();
  });
  TVM_FFI_SAFE_CALL_END();
}
