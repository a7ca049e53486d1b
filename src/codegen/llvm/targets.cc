// SPDX-License-Identifier: Apache-2.0
// Everything that is known about one kind of processor is in one place: add one here.
#include "codegen/llvm/targets.h"

#include <llvm/Support/TargetSelect.h>
#include <llvm/TargetParser/Host.h>

#include <mutex>

#include "support/error.h"

// The build lists the back ends that it links, as LLVM_BACKEND(X86).
#define LLVM_BACKEND(name)                            \
  extern "C" void LLVMInitialize##name##TargetInfo(); \
  extern "C" void LLVMInitialize##name##Target();     \
  extern "C" void LLVMInitialize##name##TargetMC();   \
  extern "C" void LLVMInitialize##name##AsmPrinter();
#include "llvm_backends.def"
#undef LLVM_BACKEND

namespace relaxvm::codegen {
namespace {

#define LLVM_BACKEND(name) " " #name
constexpr const char* kBackEnds =
#include "llvm_backends.def"
    ;
#undef LLVM_BACKEND

void InitializeTargets() {
  static std::once_flag once;
  std::call_once(once, [] {
#define LLVM_BACKEND(name)            \
  LLVMInitialize##name##TargetInfo(); \
  LLVMInitialize##name##Target();     \
  LLVMInitialize##name##TargetMC();   \
  LLVMInitialize##name##AsmPrinter();
#include "llvm_backends.def"
#undef LLVM_BACKEND
  });
}

// What runtime/platform/cpus.cc can ask a processor for.  LLVM ends the process when it is asked
// for a feature of another kind of processor.
constexpr const char* kX86Features[] = {
    "sse3",       "ssse3",      "sse4.1",      "sse4.2",     "popcnt",       "avx",
    "f16c",       "fma",        "avx2",        "bmi",        "bmi2",         "lzcnt",
    "movbe",      "avx512f",    "avx512bw",    "avx512cd",   "avx512dq",     "avx512vl",
    "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vnni", "avx512bitalg", "avx512vpopcntdq",
    "avx512bf16", "avx512fp16", "gfni",        "vaes",       "vpclmulqdq",   "avxvnni",
    "amx-tile",   "amx-int8",   "amx-bf16"};
constexpr const char* kAArch64Features[] = {"neon",   "crc",       "lse",     "rdm",      "rcpc",
                                            "jsconv", "complxnum", "dotprod", "fullfp16", "fp16fml",
                                            "bf16",   "i8mm",      "sve",     "sve2"};

bool Has(const llvm::MCSubtargetInfo& subtarget, const char* feature) {
  return subtarget.checkFeatures(std::string("+") + feature);
}

bool IsX86(const llvm::MCSubtargetInfo& subtarget) { return subtarget.getTargetTriple().isX86(); }

}  // namespace

llvm::Triple TripleOf(const target::Target& wanted) {
  llvm::Triple triple(wanted.triple.empty() ? llvm::sys::getProcessTriple()
                                            : llvm::Triple::normalize(wanted.triple));
  const bool known =
      triple.getArch() == llvm::Triple::x86_64 || triple.getArch() == llvm::Triple::aarch64;
  if (!known || !triple.isOSLinux() || !triple.isOSBinFormatELF() ||
      triple.getEnvironment() == llvm::Triple::GNUILP32 ||
      triple.getEnvironment() == llvm::Triple::GNUX32) {
    Fail(ErrorKind::kValueError, "target: code cannot be made for -mtriple=", wanted.triple,
         "; use x86_64-linux-gnu or aarch64-linux-gnu");
  }
  return triple;
}

const llvm::Target* BackEndFor(const llvm::Triple& triple, const std::string& text) {
  InitializeTargets();
  std::string error;
  const llvm::Target* found = llvm::TargetRegistry::lookupTarget(triple, error);
  if (found != nullptr) return found;
  Fail(ErrorKind::kValueError, "target '", text, "': this relaxvm was built with LLVM's back ends",
       kBackEnds, ", without ", triple.isX86() ? "X86" : "AArch64",
       "; run: pip install 'mlc-llvm-static[all]', and build relaxvm with --no-build-isolation");
}

llvm::TargetLibraryInfoImpl NoLibrary(const llvm::Triple& triple) {
  llvm::TargetLibraryInfoImpl library(triple);
  library.disableAllFunctions();
  return library;
}

void CheckCpu(const llvm::Target& back_end, const llvm::Triple& triple, const std::string& cpu,
              const std::string& text) {
  std::unique_ptr<llvm::MCSubtargetInfo> names(back_end.createMCSubtargetInfo(triple, "", ""));
  if (names != nullptr && names->isCPUStringValid(cpu)) return;
  for (const char* name : {"x86_64-linux-gnu", "aarch64-linux-gnu"}) {
    llvm::Triple other(name);
    std::string error;
    const llvm::Target* found = llvm::TargetRegistry::lookupTarget(other, error);
    if (found == nullptr || other.getArch() == triple.getArch()) continue;
    names.reset(found->createMCSubtargetInfo(other, "", ""));
    if (names != nullptr && names->isCPUStringValid(cpu)) {
      Fail(ErrorKind::kValueError, "target '", text, "': ", cpu, " is no CPU of ", triple.str(),
           "; add -mtriple=", name);
    }
  }
  Fail(ErrorKind::kValueError, "target '", text, "': unknown CPU ", cpu,
       "; write its LLVM name, such as ",
       triple.isX86() ? "znver4, haswell or x86-64-v3" : "cortex-a72, neoverse-n1 or apple-m1");
}

std::string RequiredFeatures(const llvm::MCSubtargetInfo& subtarget) {
  std::string text;
  auto collect = [&](const auto& names) {
    for (const char* name : names) {
      if (Has(subtarget, name)) text += (text.empty() ? "+" : ",+") + std::string(name);
    }
  };
  if (IsX86(subtarget)) {
    collect(kX86Features);
  } else {
    collect(kAArch64Features);
  }
  return text;
}

TargetTraits TraitsOf(const llvm::MCSubtargetInfo& subtarget) {
  TargetTraits traits;
  if (IsX86(subtarget)) {
    traits.converts_to_least = true;
    traits.fma = Has(subtarget, "fma");
    traits.f16c = Has(subtarget, "f16c");
    traits.rounding = Has(subtarget, "sse4.1");
    traits.vector_bits = Has(subtarget, "avx512f") ? 512 : Has(subtarget, "avx") ? 256 : 128;
    traits.few_registers = traits.vector_bits < 512;
    traits.picks = traits.fma && Has(subtarget, traits.vector_bits == 512 ? "avx512dq" : "avx2");
    const bool vl = Has(subtarget, "avx512vl");
    traits.byte_tables = traits.vector_bits == 512 && vl && Has(subtarget, "avx512vbmi");
    traits.pairs = vl && Has(subtarget, "avx512bf16") ? DotOf::kX86 : DotOf::kNone;
    const char* widest = traits.vector_bits == 512   ? "avx512bw"
                         : traits.vector_bits == 256 ? "avx2"
                                                     : "sse2";
    traits.packs = Has(subtarget, widest);
    const bool has_vnni = (vl && Has(subtarget, "avx512vnni")) ||
                          (traits.vector_bits == 256 && Has(subtarget, "avxvnni"));
    traits.bytes = has_vnni                 ? DotOf::kX86
                   : Has(subtarget, widest) ? DotOf::kX86Halves
                                            : DotOf::kNone;
    traits.byte_pairs = traits.bytes == DotOf::kX86Halves && Has(subtarget, "ssse3");
    return traits;
  }
  // Every AArch64 with NEON multiplies and adds at once, rounds and converts float16.
  traits.fma = traits.f16c = traits.rounding = true;
  traits.vector_bits = 128;
  traits.pairs = Has(subtarget, "bf16") ? DotOf::kArm : DotOf::kNone;
  traits.bytes = Has(subtarget, "i8mm")      ? DotOf::kArm
                 : Has(subtarget, "dotprod") ? DotOf::kArmOneSign
                                             : DotOf::kNone;
  return traits;
}

target::Machine MachineFor(const llvm::MCSubtargetInfo& subtarget) {
  const TargetTraits traits = TraitsOf(subtarget);
  target::Machine machine;
  machine.fma = traits.fma;
  machine.dot_bf16 = traits.pairs != DotOf::kNone;
  machine.dot_int8 = traits.bytes != DotOf::kNone;
  machine.dot_signed = machine.dot_int8 && traits.bytes != DotOf::kX86;
  machine.dot_by_halves = traits.bytes == DotOf::kX86Halves;
  machine.byte_pairs = traits.byte_pairs;
  machine.vector_bytes = traits.vector_bits / 8;
  if (!IsX86(subtarget)) {
    machine.num_vectors = 32;
  } else if (traits.vector_bits == 512) {
    // Without the short forms of its instructions AVX-512 is taken for AVX.
    if (!Has(subtarget, "avx512vl")) {
      machine.vector_bytes = 32;
    } else {
      machine.num_vectors = 32;
      machine.l2_bytes = 1 << 20;
      const bool matrices = Has(subtarget, "amx-tile");
      machine.matrix_bf16 = matrices && machine.dot_bf16 && Has(subtarget, "amx-bf16");
      machine.matrix_int8 = matrices && machine.dot_int8 && Has(subtarget, "amx-int8");
    }
  }
  return machine;
}

}  // namespace relaxvm::codegen
