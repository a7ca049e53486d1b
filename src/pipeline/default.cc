// SPDX-License-Identifier: Apache-2.0
// The order of everything.  Each stage's spec is in stage_spec.cc and docs/design/stages.md.
#include "pipeline/pipeline.h"

namespace relaxvm::pipeline {
namespace {

void Lower(Pipeline& p) {
  p.Stage("lowered");  // operators are calls of tensor programs, packed functions and the VM
  p.Run(Pass::kLegalizeOps);
}

// From here on nothing is chosen any more: every module takes this road.
void Finish(Pipeline& p) {
  p.Stage("scheduled");  // tensor programs have their final loops
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

}  // namespace

void MakePipeline(const std::string& name, Pipeline* p) {
  p->Stage("graph");  // any well-formed module
  if (name == "default") {
    Lower(*p);
    Finish(*p);
  } else if (name == "zero") {
    Lower(*p);
  } else if (name == "finish") {
    Lower(*p);
    Finish(*p);
  } else {
    Fail(ErrorKind::kValueError, "there is no pipeline '", name,
         "'; there are default, finish and zero");
  }
}

}  // namespace relaxvm::pipeline
