// SPDX-License-Identifier: Apache-2.0
// The order of everything.  Each stage's spec is in stage_spec.cc and docs/design/stages.md.
#include "passes/layout/pool_layout.h"
#include "pipeline/pipeline.h"

namespace relaxvm::pipeline {
namespace {

void Canonicalize(Pipeline& p) {
  p.Run(Pass::kDecomposeOps);
  p.Run(Pass::kCanonicalizeBindings);
  p.Run(Pass::kEliminateCommonSubexpr);
  p.Run(Pass::kDeadCodeElimination);
}

// What has a kernel of its own although a graph writes it in several operators.
void FuseKnownForms(Pipeline& p) {
  p.Run(Pass::kFuseAttention);
  p.Run(Pass::kFoldPadding);
  p.Run(Pass::kFoldScaleAxis);
  p.Run(Pass::kDeadCodeElimination);
}

// Channels last: the vector axis of a convolution's tile is then the one that memory runs along, in
// every layer.  Weights are converted by ordinary operators that FoldConstant evaluates.
void ChooseLayouts(Pipeline& p) {
  using Layouts = ffi::Array<ffi::String>;
  ffi::Map<ffi::String, Layouts> wanted;
  wanted.Set("relax.nn.conv1d", Layouts{"NWC", "WIO"});
  wanted.Set("relax.nn.conv2d", Layouts{"NHWC", "HWIO"});
  wanted.Set("relax.nn.conv3d", Layouts{"NDHWC", "DHWIO"});
  wanted.Set("relax.nn.conv1d_transpose", Layouts{"NWC", "WIO"});
  wanted.Set("relax.nn.conv2d_transpose", Layouts{"NHWC", "HWIO"});
  wanted.Set("relax.nn.conv3d_transpose", Layouts{"NDHWC", "DHWIO"});
  p.Run(Pass::kConvertLayout,
        {{"desired_layouts", wanted}, {"layout_cb", passes::layout::PoolLayouts()}});
  p.Run(Pass::kCanonicalizeBindings);
  p.Run(Pass::kPermuteBeforeResize);
  p.Run(Pass::kDeadCodeElimination);
}

// Fuses what LegalizeOps made and what users wrote as call_tir.
void Fuse(Pipeline& p, bool optimize) {
  p.Run(Pass::kAnnotateTIROpPattern);
  p.Run(Pass::kFoldConstant);
  if (optimize) p.Run(Pass::kPackWeights);
  // What the schedules of this compiler gain from beyond what any would.
  p.Run(Pass::kFuseOps, {{"max_outputs", 4}, {"keep_reshapes", true}, {"extend_reductions", true}});
  p.Run(Pass::kFuseTIR);
}

// From here on nothing is chosen any more: every module takes this road.
void Finish(Pipeline& p) {
  p.Run(Pass::kAnnotateWork);
  p.Stage("scheduled");  // tensor programs have their final loops
  p.Run(Pass::kScheduleTensorPrograms);

  p.Stage("planned");  // memory is explicit
  p.Run(Pass::kToNonDataflow);
  p.Run(Pass::kRemovePurityChecking);
  p.Run(Pass::kCallTIRRewrite);
  p.Run(Pass::kPlanMemory);
  p.Run(Pass::kLowerAllocTensor);
  p.Run(Pass::kKillAfterLastUse);

  p.Stage("shapes");  // what the VM runs: no symbolic size is left
  p.Run(Pass::kLowerRuntimeBuiltin);
  p.Run(Pass::kComputePrimValue);
  p.Run(Pass::kVMShapeLower);
}

}  // namespace

void MakePipeline(const std::string& name, Pipeline* pipeline) {
  Pipeline& p = *pipeline;
  p.Stage("graph");  // any well-formed module, in normal form
  p.Run(Pass::kNormalize);
  p.Run(Pass::kInlineScalarPrograms);
  p.Run(Pass::kLowerDataTypes);
  p.Run(Pass::kLambdaLift);
  p.Run(Pass::kRealizeVDevice, {{"constants", false}});  // those are still folded
  if (name == "default") {
    Canonicalize(p);
    p.Run(Pass::kConvertToDataflow, {{"min_size", int64_t{1}}});
    FuseKnownForms(p);
    ChooseLayouts(p);
    p.Run(Pass::kTabulateBytes);
    p.Run(Pass::kDeadCodeElimination);
  } else if (name != "zero" && name != "finish") {
    Fail(ErrorKind::kValueError, "there is no pipeline '", name,
         "'; there are default, finish and zero");
  }

  p.Stage("lowered");  // operators are calls of tensor programs, packed functions and the VM
  p.Run(Pass::kLegalizeOps);
  if (name != "finish") Fuse(p, name == "default");
  if (name == "default") {
    p.Run(Pass::kRewriteDataflowReshape);
    p.Run(Pass::kDeadCodeElimination);  // programs of reshapes among them
    p.Run(Pass::kShareTensorPrograms);
  }
  p.Run(Pass::kRealizeVDevice, {{"constants", true}});
  if (name != "zero") Finish(p);
}

}  // namespace relaxvm::pipeline
