// SPDX-License-Identifier: Apache-2.0
// What the environment asks of a pipeline: passes to leave out, specs to check, texts to write.
#pragma once

#include <string>
#include <vector>

#include "pipeline/pipeline.h"

namespace relaxvm::pipeline {

struct Settings {
  bool verify = false;
  std::vector<std::string> disabled;
  std::vector<std::string> dump;  // "after:FuseOps", "stage:lowered", "all"
  std::string dump_dir;

  static Settings FromEnvironment();
  bool IsDisabled(const std::string& pass) const;
  // Write the module when asked to: <dump_dir>/<number>_<name>.py, numbered in order of passes.
  void DumpPass(const std::string& pass, int number, const PassTiming& timing,
                const IRModule& mod) const;
  void DumpStage(const std::string& stage, int number, const IRModule& mod) const;
};

}  // namespace relaxvm::pipeline
