// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: bytes are loaded as an executable, and every function that takes few arguments
// is run. Build and run it with the preset `fuzz`; what it finds goes to load_executable/, which a
// test runs.
#include <tvm/ffi/function.h>

#include <string_view>

#include "../bytecode/programs.h"
#include "bytecode/serialize.h"
#include "vm/virtual_machine.h"

namespace relaxvm {
namespace {

namespace ffi = tvm::ffi;

void LoadAndRun(std::string_view bytes) {
  auto executable =
      ffi::make_object<vm::ExecutableModule>(bytecode::Deserialize(bytes, "input"), "input");
  auto machine = vm::VirtualMachine::Create(
      executable, {{DLDevice{kDLCPU, 0}, runtime::AllocatorKind::kPooled, int64_t{64} << 20}});
  machine->set_time_limit_ns(20'000'000);
  for (const bytecode::FuncInfo& info : machine->data().func_table) {
    if (info.kind != bytecode::FuncKind::kVMFunc || info.num_args > 4) continue;
    std::vector<ffi::Any> args(static_cast<size_t>(info.num_args), testing::Zeros({2, 3}));
    std::vector<ffi::AnyView> views(args.begin(), args.end());
    ffi::Any result;
    try {
      machine->FindFunction(info.name).value().CallPacked(
          views.data(), static_cast<int32_t>(views.size()), &result);
    } catch (const ffi::Error&) {
    }
  }
}

}  // namespace
}  // namespace relaxvm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    relaxvm::LoadAndRun({reinterpret_cast<const char*>(data), size});
  } catch (const tvm::ffi::Error&) {
  }
  return 0;
}
