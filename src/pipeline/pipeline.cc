// SPDX-License-Identifier: Apache-2.0
// Runs passes in order: options filled in, disabled ones skipped, specs verified, texts dumped,
// times taken.
#include "pipeline/pipeline.h"

#include <chrono>
#include <map>
#include <utility>

#include "pipeline/pass_options.h"
#include "pipeline/settings.h"
#include "pipeline/stage_spec.h"

namespace relaxvm::pipeline {
namespace {

struct PassRow {
  const char* name;
  const char* options;
  passes::PassFn run;
};

const PassRow& RowOf(Pass pass) {
  static const std::vector<PassRow> rows = {
#define PASS(name, options, doc) {#name, options, &passes::name},
#include "passes/pass_list.def"
#undef PASS
  };
  return rows[static_cast<size_t>(pass)];
}

}  // namespace

const char* PassName(Pass pass) { return RowOf(pass).name; }

void Pipeline::Stage(const char* name) { stages_.emplace_back(name); }

void Pipeline::Run(Pass pass, ffi::Map<ffi::String, ffi::Any> options) {
  RELAXVM_CHECK(!stages_.empty()) << "a pass belongs to a stage";
  steps_.push_back({static_cast<int>(stages_.size()) - 1, pass, std::move(options)});
}

std::vector<std::string> Pipeline::StopNames() const {
  std::vector<std::string> names;
  std::map<std::string, int> runs;
  for (const Step& step : steps_) {
    std::string name = PassName(step.pass);
    int run = ++runs[name];
    names.push_back(run > 1 ? name + "#" + std::to_string(run) : name);
  }
  return names;
}

std::vector<std::pair<std::string, std::string>> Pipeline::StepNames() const {
  std::vector<std::pair<std::string, std::string>> names;
  for (const Step& step : steps_) names.emplace_back(stages_[step.stage], PassName(step.pass));
  return names;
}

RunResult Pipeline::Execute(IRModule mod, const RunOptions& options) const {
  Settings settings = Settings::FromEnvironment();
  passes::PassContext context;
  context.config = options.config;
  context.target = options.target;
  context.evaluate = options.evaluate;
  context.num_threads = options.num_threads;
  CheckStopAfter(StageNames(), StopNames(), options.stop_after);
  RunResult result{std::move(mod), false, {}};
  std::vector<std::string> names = StopNames();
  std::string last_pass;
  size_t next = 0;
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    for (; next < steps_.size() && steps_[next].stage == static_cast<int>(stage); ++next) {
      const Step& step = steps_[next];
      const PassRow& row = RowOf(step.pass);
      if (options.check_interrupt) options.check_interrupt();
      if (options.progress) options.progress({row.name, static_cast<int>(next), num_passes()});
      if (!settings.IsDisabled(row.name) &&
          (!options.watch.before || options.watch.before(row.name, result.mod))) {
        context.options = CompleteOptions(row.name, row.options, step.options);
        auto start = std::chrono::steady_clock::now();
        IRModule after = row.run(result.mod, context);
        std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
        result.timings.push_back(
            {stages_[stage], row.name, seconds.count(), !after.same_as(result.mod)});
        result.mod = std::move(after);
        last_pass = row.name;
        if (settings.verify) CheckStage(result.mod, stages_[stage], /*complete=*/false, row.name);
        settings.DumpPass(row.name, static_cast<int>(next), result.timings.back(), result.mod);
        if (options.watch.after) options.watch.after(row.name, result.mod);
      }
      if (options.stop_after == names[next]) {
        result.stopped = true;
        return result;
      }
    }
    if (settings.verify) CheckStage(result.mod, stages_[stage], /*complete=*/true, last_pass);
    settings.DumpStage(stages_[stage], static_cast<int>(next), result.mod);
    if (options.stop_after == stages_[stage]) {
      result.stopped = true;
      return result;
    }
  }
  return result;
}

}  // namespace relaxvm::pipeline
