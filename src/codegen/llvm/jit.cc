// SPDX-License-Identifier: Apache-2.0
// Loads compiled objects into this process.
#include <llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/ExecutionEngine/Orc/MapperJITLinkMemoryManager.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>
#include <llvm/Support/MemoryBuffer.h>
#include <tvm/ffi/c_api.h>

#include "codegen/llvm/compiler.h"
#include "codegen/llvm/kernels.h"
#include "support/error.h"

namespace relaxvm::codegen {
namespace {

namespace orc = llvm::orc;

template <typename T>
T Must(llvm::Expected<T> value, const char* what) {
  if (value) return std::move(*value);
  Fail(ErrorKind::kRuntimeError, "kernels cannot be loaded into memory: ", what, ": ",
       llvm::toString(value.takeError()));
}
void Must(llvm::Error error, const char* what) {
  if (error)
    Fail(ErrorKind::kRuntimeError, "kernels cannot be loaded into memory: ", what, ": ",
         llvm::toString(std::move(error)));
}

// Code of one set lies in one piece of the address space: objects refer to each other by 32-bit
// distances.
constexpr uint64_t kReservedBytes = uint64_t{256} << 20;

}  // namespace

LoadedKernels LoadInMemory(const KernelSet& kernels) {
  Compiler initialises_targets(kernels.target);
  auto memory = [](orc::ExecutionSession&) {
    return orc::MapperJITLinkMemoryManager::CreateWithMapper<orc::InProcessMemoryMapper>(
        kReservedBytes);
  };
  std::shared_ptr<orc::LLJIT> jit =
      Must(orc::LLJITBuilder().setMemoryManagerCreator(memory).create(), "start");
  orc::JITDylib& dylib = jit->getMainJITDylib();
  orc::SymbolMap host;
  host[jit->mangleAndIntern("TVMFFIErrorSetRaisedFromCStr")] = {
      orc::ExecutorAddr::fromPtr(&TVMFFIErrorSetRaisedFromCStr), llvm::JITSymbolFlags::Exported};
  Must(dylib.define(orc::absoluteSymbols(std::move(host))), "symbols of the host");
  for (const KernelObject& object : kernels.objects) {
    Must(jit->addObjectFile(llvm::MemoryBuffer::getMemBufferCopy(object.bytes)), "object");
  }
  auto find = [jit](const std::string& symbol) -> void* {
    llvm::Expected<orc::ExecutorAddr> address = jit->lookup(symbol);
    if (address) return address->toPtr<void*>();
    llvm::consumeError(address.takeError());
    return nullptr;
  };
  LoadedKernels loaded;
  loaded.table = Must(jit->lookup(kKernelTableSymbol), "table").toPtr<const RelaxvmKernelTable*>();
  loaded.keep_alive = jit;
  loaded.lookup = find;
  return loaded;
}

}  // namespace relaxvm::codegen
