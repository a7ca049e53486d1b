// SPDX-License-Identifier: Apache-2.0
// Compilation for Python.
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/reflection/registry.h>

#include <string>
#include <unordered_map>

#include "api/register.h"
#include "pipeline/build.h"
#include "pipeline/export.h"
#include "pipeline/memory_report.h"
#include "pipeline/stage_spec.h"
#include "runtime/platform/memory.h"

namespace relaxvm::api {

namespace ffi = tvm::ffi;
namespace refl = tvm::ffi::reflection;

namespace {

using Dict = ffi::Map<ffi::String, ffi::Any>;

// Ctrl-C: Python has noted a signal for this thread.
void CheckInterrupt() {
  if (TVMFFIEnvCheckSignals() != 0) throw ffi::EnvErrorAlreadySet();
}

// Options come complete from Python: target, exec_mode, stop_after, num_threads, config, progress,
// take (for Build: the module, see TakeFrom), and of the pass context: before (name, module) ->
// bool, after (name, module), or None for both.
pipeline::BuildOptions OptionsFrom(const Dict& given) {
  pipeline::BuildOptions options;
  options.pipeline = given["pipeline"].cast<ffi::String>();
  options.exec_mode = given["exec_mode"].cast<ffi::String>();
  options.num_threads = static_cast<int>(given["num_threads"].cast<int64_t>());
  options.run.target = given["target"].cast<ffi::String>();
  options.run.config = given["config"].cast<Dict>();
  options.run.stop_after = given["stop_after"].cast<ffi::String>();
  options.run.check_interrupt = CheckInterrupt;
  if (given["progress"] != nullptr) {
    options.run.progress =
        [call = given["progress"].cast<ffi::Function>()](const pipeline::Progress& p) {
          call(ffi::String(p.step), p.done, p.total);
        };
  }
  if (given["before"] != nullptr) {
    options.run.watch.before = [call = given["before"].cast<ffi::Function>()](
                                   const char* pass, const ir::IRModule& mod) {
      return call(ffi::String(pass), mod).cast<bool>();
    };
    options.run.watch.after = [call = given["after"].cast<ffi::Function>()](
                                  const char* pass, const ir::IRModule& mod) {
      call(ffi::String(pass), mod);
    };
  }
  return options;
}

// What is in `mod`, which is empty afterwards: Python holds its arguments during a call, and with
// them weights that the passes have long replaced.
ir::IRModule TakeFrom(const ir::IRModule& mod) {
  auto* given = const_cast<ir::IRModuleObj*>(mod.get());
  ir::IRModule taken(std::move(given->functions), std::move(given->attrs),
                     std::move(given->global_infos));
  given->functions = {};
  given->attrs = {};
  given->global_infos = {};
  given->RebuildNames();
  return taken;
}

// Always {"module", "timings"}; {"executable"} unless the compilation stopped early.
Dict Build(ir::IRModule mod, Dict given) {
  if (given["take"].cast<bool>()) mod = TakeFrom(mod);
  pipeline::BuildResult built = pipeline::Build(std::move(mod), OptionsFrom(given));
  Dict result;
  ffi::Array<ffi::Any> timings;
  for (const pipeline::PassTiming& t : built.timings) {
    timings.push_back(
        ffi::Array<ffi::Any>{ffi::String(t.stage), ffi::String(t.pass), t.seconds, t.changed});
  }
  result.Set("timings", timings);
  result.Set("module", built.mod);
  if (!built.stopped) result.Set("executable", built.executable.value());
  return result;
}

pipeline::Pipeline PipelineCalled(const ffi::String& name) {
  pipeline::Pipeline p;
  pipeline::MakePipeline(name, &p);
  return p;
}

// A pipeline without code generation.
ir::IRModule Run(ir::IRModule mod, Dict given) {
  pipeline::BuildOptions options = OptionsFrom(given);
  options.run.evaluate = pipeline::MakeEvaluate(options.run.target);
  return PipelineCalled(given["pipeline"].cast<ffi::String>())
      .Execute(std::move(mod), options.run)
      .mod;
}

// [[stage, pass]...]
ffi::Array<ffi::Any> Steps(ffi::String name) {
  ffi::Array<ffi::Any> rows;
  for (const auto& [stage, pass] : PipelineCalled(name).StepNames()) {
    rows.push_back(ffi::Array<ffi::Any>{ffi::String(stage), ffi::String(pass)});
  }
  return rows;
}

ffi::Any FindViolation(ir::IRModule mod, ffi::String stage) {
  auto found = pipeline::FindViolation(mod, stage, /*complete=*/true);
  if (!found) return nullptr;
  return ffi::Array<ffi::Any>{ffi::String(found->rule), ffi::String(found->message)};
}

// {"planned_peak", "most_alive" (bytes), "storages", "tensors"}
Dict ReportMemory(ir::IRModule mod, ffi::String function, ffi::Map<ffi::String, int64_t> sizes) {
  std::unordered_map<std::string, int64_t> values;
  for (const auto& [name, value] : sizes) values.emplace(std::string(name), value);
  pipeline::MemoryReport report = pipeline::ReportMemory(mod, function, values);
  Dict result;
  result.Set("planned_peak", report.planned_peak_bytes);
  result.Set("most_alive", report.most_alive_bytes);
  result.Set("storages", int64_t{report.num_storages});
  result.Set("tensors", int64_t{report.num_tensors});
  return result;
}

ffi::Array<ffi::Any> Rules() {
  ffi::Array<ffi::Any> rows;
  for (const pipeline::RuleInfo& rule : pipeline::AllRules()) {
    rows.push_back(ffi::Array<ffi::Any>{ffi::String(rule.stage), ffi::String(rule.name),
                                        ffi::String(rule.meaning)});
  }
  return rows;
}

}  // namespace

void RegisterPipeline() {
  refl::GlobalDef()
      .def("relaxvm.pipeline.Build", Build)
      .def("relaxvm.compiler.export_library",
           [](ffi::Module executable, ffi::String path, bool for_tvm) {
             pipeline::ExportLibrary(
                 executable, path,
                 for_tvm ? pipeline::Interchange::kTvm : pipeline::Interchange::kNone);
           })
      .def("relaxvm.compiler.export_kernels",
           [](ffi::Module executable, ffi::String path) {
             pipeline::ExportKernels(executable, path);
           })
      .def("relaxvm.compiler.inspect_source",
           [](const ir::IRModule& mod, ffi::String name, ffi::String target, ffi::String format) {
             return ffi::String(pipeline::InspectSource(mod, name, target, format));
           })
      .def("relaxvm.compiler.load_object_file",
           [](ffi::String path) { return pipeline::LoadObjectFile(path); })
      .def("relaxvm.pipeline.ReleaseAfterWork",
           [] { runtime::ReleaseAfterWork(reinterpret_cast<const void*>(&Build)); })
      .def("relaxvm.pipeline.Run", Run)
      .def("relaxvm.pipeline.Steps", Steps)
      .def("relaxvm.pipeline.FindViolation", FindViolation)
      .def("relaxvm.pipeline.ReportMemory", ReportMemory)
      .def("relaxvm.pipeline.Rules", Rules);
}

}  // namespace relaxvm::api
