// SPDX-License-Identifier: Apache-2.0
// From a module at any stage to an executable: the pipeline, bytecode, native code, linked into
// one.
#pragma once

#include <tvm/ffi/extra/module.h>

#include <string>
#include <vector>

#include "pipeline/pipeline.h"

namespace relaxvm::pipeline {

struct BuildOptions {
  std::string pipeline = "default";    // or "finish"
  std::string exec_mode = "bytecode";  // or "compiled"
  int num_threads = 0;                 // compile jobs at once; 0: as many as the process may use
  RunOptions run;                      // target, config, stop_after, progress, check_interrupt
};

struct BuildResult {
  IRModule mod;          // after the last pass
  bool stopped = false;  // at stop_after: there is no executable
  ffi::Optional<ffi::Module> executable;
  std::vector<PassTiming> timings;
};

BuildResult Build(IRModule mod, const BuildOptions& options);

// Compiles and runs tensor programs on constants, for FoldConstant; equal programs are compiled
// once.
passes::Evaluate MakeEvaluate(const std::string& target);

}  // namespace relaxvm::pipeline
