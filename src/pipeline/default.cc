// SPDX-License-Identifier: Apache-2.0
// The order of everything.  Each stage's spec is in stage_spec.cc and docs/design/stages.md.
#include "pipeline/pipeline.h"

namespace relaxvm::pipeline {

void DefaultPipeline(Pipeline& p) {
  p.Stage("graph");  // any well-formed module

  p.Stage("lowered");  // operators are calls of tensor programs, packed functions and the VM
  p.Run(Pass::kLegalizeOps);

  p.Stage("scheduled");  // tensor programs are final loops
  p.Run(Pass::kScheduleTensorPrograms);

  p.Stage("planned");  // memory is explicit
  p.Run(Pass::kToNonDataflow);
  p.Run(Pass::kRemovePurityChecking);
  p.Run(Pass::kCallTIRRewrite);
  p.Run(Pass::kStaticPlanBlockMemory);
  p.Run(Pass::kLowerAllocTensor);
  p.Run(Pass::kKillAfterLastUse);

  p.Stage("shapes");  // what the VM runs: no symbolic size is left
  p.Run(Pass::kLowerRuntimeBuiltin);
  p.Run(Pass::kComputePrimValue);
  p.Run(Pass::kVMShapeLower);
}

}  // namespace relaxvm::pipeline
