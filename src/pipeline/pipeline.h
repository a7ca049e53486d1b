// SPDX-License-Identifier: Apache-2.0
// A pipeline: stages in order, passes in each.  Running it names, times, verifies and dumps every
// pass.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ir/module.h"
#include "passes/pass.h"

namespace relaxvm::pipeline {

namespace ffi = tvm::ffi;
using ir::IRModule;

// Every pass that a pipeline may name: the rows of pass_list.def.
enum class Pass : uint8_t {
#define PASS(name, options, doc) k##name,
#include "passes/pass_list.def"
#undef PASS
};
const char* PassName(Pass pass);

struct Progress {
  std::string step;  // "FuseOps", "native code"
  int done = 0;
  int total = 0;
};

struct PassTiming {
  std::string stage;
  std::string pass;
  double seconds = 0;
  bool changed = false;  // gave back another object
};

// What watches passes.  `before` may refuse one, which is then left out.
struct PassWatch {
  std::function<bool(const char* pass, const IRModule& mod)> before;
  std::function<void(const char* pass, const IRModule& mod)> after;
};

struct RunOptions {
  std::string target = "llvm";
  ffi::Map<ffi::String, ffi::Any> config;
  passes::Evaluate evaluate;
  int num_threads = 1;
  // A stage ("lowered"), or a pass, as often as it has run: "FoldConstant", "FoldConstant#2".
  // Empty: to the end.
  std::string stop_after;
  std::function<void(const Progress&)> progress;
  PassWatch watch;                        // both functions, or none
  std::function<void()> check_interrupt;  // throws when the user asked to stop
};

struct RunResult {
  IRModule mod;
  bool stopped = false;  // at `stop_after`
  std::vector<PassTiming> timings;
};

class Pipeline {
 public:
  // Begins a stage; the passes after it belong to it, and its spec holds after each of them.
  void Stage(const char* name);
  void Run(Pass pass, ffi::Map<ffi::String, ffi::Any> options = {});

  RunResult Execute(IRModule mod, const RunOptions& options) const;

  const std::vector<std::string>& StageNames() const { return stages_; }
  std::vector<std::string> StopNames()
      const;  // passes, as often as they run: "FoldConstant", "FoldConstant#2"
  std::vector<std::pair<std::string, std::string>> StepNames() const;  // stage, pass
  int num_passes() const { return static_cast<int>(steps_.size()); }

 private:
  struct Step {
    int stage;
    Pass pass;
    ffi::Map<ffi::String, ffi::Any> options;
  };
  std::vector<std::string> stages_;
  std::vector<Step> steps_;
};

// The module as TVMScript.
std::string ModuleText(const IRModule& mod);

// The pipelines of default.cc by name: "default" (the whole road), "zero" (operators lowered and
// fused), "finish" (what turns a module at any stage into bytecode, without optimising).  Throws
// ValueError for another name.
void MakePipeline(const std::string& name, Pipeline* p);

}  // namespace relaxvm::pipeline
