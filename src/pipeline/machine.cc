// SPDX-License-Identifier: Apache-2.0
// LLVM's knowledge of a CPU and the running system's of its caches, put together.
#include "pipeline/machine.h"

#include "codegen/llvm/kernels.h"
#include "runtime/platform/cpus.h"
#include "target/target.h"

namespace relaxvm::pipeline {

target::Machine MachineFor(const std::string& text) {
  target::Machine machine = codegen::MachineOf(text);
  const target::Target named = target::ParseTarget(text);
  if (!named.cpu.empty() || !named.triple.empty()) return machine;
  const runtime::CacheSizes caches = runtime::ReadCacheSizes();
  if (caches.l1 > 0) machine.l1_bytes = caches.l1;
  if (caches.l2 > 0) {
    machine.l2_bytes = caches.l2;
    machine.l3_bytes = caches.l3;
  }
  machine.num_cores = runtime::NumUsableCpus();
  return machine;
}

std::string WhyNotHere(const std::string& target) {
  const codegen::MachineCode code = codegen::MachineCodeOf(target);
  if (code.is_foreign) return "it is compiled for " + code.triple;
  std::string list;
  for (const std::string& name : runtime::MissingCpuFeatures(code.features))
    list += (list.empty() ? "" : ", ") + name;
  if (list.empty()) return "";
  return "it is compiled for the CPU " + code.cpu + ", and this one lacks " + list;
}

}  // namespace relaxvm::pipeline
