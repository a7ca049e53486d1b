// SPDX-License-Identifier: Apache-2.0
// RELAXVM_VERIFY, RELAXVM_DISABLE and RELAXVM_DUMP.
#include "pipeline/settings.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "support/flags.h"

namespace relaxvm::pipeline {
namespace {

bool Has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void WriteText(const std::string& dir, int number, const std::string& name, const std::string& head,
               const IRModule& mod) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  char prefix[16];
  std::snprintf(prefix, sizeof(prefix), "%03d_", number);
  std::string path = dir + "/" + prefix + name + ".py";
  std::ofstream file(path);
  file << head << ModuleText(mod) << "\n";
  if (!file) Fail(ErrorKind::kRuntimeError, "RELAXVM_DUMP: ", path, " cannot be written");
}

}  // namespace

Settings Settings::FromEnvironment() {
  return {FlagIsOn(Flag::kVerify), FlagList(Flag::kDisable), FlagList(Flag::kDump),
          FlagText(Flag::kDumpDir)};
}

bool Settings::IsDisabled(const std::string& pass) const { return Has(disabled, pass); }

void Settings::DumpPass(const std::string& pass, int number, const PassTiming& timing,
                        const IRModule& mod) const {
  if (!Has(dump, "all") && !Has(dump, "after:" + pass)) return;
  char took[64];
  std::snprintf(took, sizeof(took), "%.3f ms", timing.seconds * 1e3);
  std::string head = "# after " + pass + " (stage " + timing.stage + "), " + took;
  WriteText(dump_dir, number, pass, head + (timing.changed ? "\n" : " (unchanged)\n"), mod);
}

void Settings::DumpStage(const std::string& stage, int number, const IRModule& mod) const {
  if (Has(dump, "stage:" + stage))
    WriteText(dump_dir, number, "stage_" + stage, "# end of stage " + stage + "\n", mod);
}

}  // namespace relaxvm::pipeline
