// SPDX-License-Identifier: Apache-2.0
// Loads compiled objects into this process.
#include <llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/ExecutionEngine/Orc/MapperJITLinkMemoryManager.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>
#include <llvm/Support/MemoryBuffer.h>
#include <tvm/ffi/c_api.h>

#include <mutex>

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

// Code of one set lies in one piece of the address space, because objects refer to each other by
// 32-bit distances.  Sections start on pages of their own.
uint64_t BytesToReserve(const KernelSet& kernels) {
  constexpr uint64_t kPages = 8 * 4096;
  uint64_t bytes = uint64_t{256} << 10;
  for (const KernelObject& object : kernels.objects) bytes += object.bytes.size() + kPages;
  return llvm::alignTo(bytes, 64 << 10);
}

// What the session reports besides the error that a call returns: the cause.
struct Reports {
  std::mutex mutex;
  std::string text;
};

}  // namespace

LoadedKernels LoadInMemory(const KernelSet& kernels) {
  Compiler initialises_targets(kernels.target);
  auto memory = [bytes = BytesToReserve(kernels)](orc::ExecutionSession&) {
    return orc::MapperJITLinkMemoryManager::CreateWithMapper<orc::InProcessMemoryMapper>(bytes);
  };
  std::shared_ptr<orc::LLJIT> jit =
      Must(orc::LLJITBuilder().setMemoryManagerCreator(memory).create(), "start");
  auto reports = std::make_shared<Reports>();
  jit->getExecutionSession().setErrorReporter([reports](llvm::Error error) {
    std::lock_guard<std::mutex> lock(reports->mutex);
    reports->text += "; " + llvm::toString(std::move(error));
  });
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
  llvm::Expected<orc::ExecutorAddr> table = jit->lookup(kKernelTableSymbol);
  if (!table) {
    std::string reason = llvm::toString(table.takeError());
    std::lock_guard<std::mutex> lock(reports->mutex);
    Fail(ErrorKind::kRuntimeError, "kernels cannot be loaded into memory: ", reason, reports->text);
  }
  loaded.table = table->toPtr<const RelaxvmKernelTable*>();
  loaded.keep_alive = jit;
  loaded.lookup = find;
  return loaded;
}

}  // namespace relaxvm::codegen
