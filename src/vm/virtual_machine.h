// SPDX-License-Identifier: Apache-2.0
// A VM: an executable on devices, with memory pools.  A tvm-ffi module, so that every client can
// ask it for functions. Calls may come from any number of threads; set_input, invoke_stateful and
// get_output keep state per VM, under a lock.
#pragma once

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "runtime/memory_pool.h"
#include "vm/executable_module.h"
#include "vm/profile.h"
#include "vm/program.h"
#include "vm/tail_chain.h"

namespace relaxvm::vm {

enum class TailAction;

struct DeviceConfig {
  DLDevice device;
  runtime::AllocatorKind allocator = runtime::AllocatorKind::kPooled;
  int64_t memory_limit_bytes = 0;
};

class VirtualMachine final : public tvm::ffi::ModuleObj {
 public:
  // Loads the executable for `devices`; a CPU is appended unless the last device is one.
  static tvm::ffi::ObjectPtr<VirtualMachine> Create(
      tvm::ffi::ObjectPtr<ExecutableModule> executable, std::vector<DeviceConfig> devices);
  // Null when `module` is no VM of ours.
  static VirtualMachine* From(const tvm::ffi::Module& module);

  const char* kind() const override { return "relaxvm.VirtualMachine"; }
  int GetPropertyMask() const override { return tvm::ffi::Module::kRunnable; }
  // Functions of the executable, then the VM's own (vm_functions.cc).
  tvm::ffi::Optional<tvm::ffi::Function> GetFunction(const tvm::ffi::String& name) override;

  // A function of the executable; empty when there is none.
  tvm::ffi::Optional<tvm::ffi::Function> FindFunction(const std::string& name);
  const bytecode::ExecutableData& data() const { return executable_->data(); }
  const ExecutableModule& executable() const { return *executable_; }

  // What new calls run: the instrumented program while an instrument is set.
  const Program* program() const { return current_.load(std::memory_order_acquire); }
  std::vector<const Program*> AllPrograms() const;
  tvm::ffi::ObjectRef Self();

  size_t num_devices() const { return pools_.size(); }
  // -1 is the host, the last device.  Throws IndexError.
  const std::shared_ptr<runtime::MemoryPool>& pool(int64_t index) const;
  // The pool of the VM's device; null when it has none there.
  std::shared_ptr<runtime::MemoryPool> PoolOf(DLDevice device) const;
  // Waits for all work on the VM's devices.
  void Synchronize() const;
  // A constant of the executable on another device: copied there once, at its first use.  Empty
  // when `tensor` is no constant.
  std::optional<tvm::ffi::Tensor> ConstantOn(const tvm::ffi::Tensor& tensor, DLDevice device);
  int num_threads() const { return num_threads_.load(std::memory_order_relaxed); }
  void set_num_threads(int count);
  int64_t time_limit_ns() const { return time_limit_ns_.load(std::memory_order_relaxed); }
  void set_time_limit_ns(int64_t limit_ns) { time_limit_ns_.store(limit_ns); }
  // Of the registers of a call and all calls below it: what bounds recursion.
  int64_t stack_bytes() const { return stack_bytes_.load(std::memory_order_relaxed); }
  void set_stack_bytes(int64_t num_bytes);

  // Called before and after each call of every function; null ends it.
  void SetInstrument(tvm::ffi::Function instrument);
  // Records every call until EndProfile, which returns what was recorded.
  void BeginProfile();
  std::shared_ptr<const Profile> EndProfile();
  int CallWithInstrument(CallContext* context, const Insn* ip, const Slot* args, Slot* result);
  TailAction BeforeTailCall(CallContext* context, const Insn* ip, const Slot* args);
  int RunWatched(CallContext* context, const Function* function, Slot* frame, Slot* result);

  // The stateful interface.
  void SetInput(const std::string& function, std::vector<tvm::ffi::Any> args);
  void InvokeStateful(const std::string& function);
  tvm::ffi::Any GetOutput(const std::string& function, const std::vector<int64_t>& path);
  int64_t GetOutputArity(const std::string& function, const std::vector<int64_t>& path);
  void SaveFunction(const std::string& function, const std::string& saved_name,
                    std::vector<tvm::ffi::Any> args, bool include_return);

  explicit VirtualMachine(tvm::ffi::ObjectPtr<ExecutableModule> executable)
      : executable_(std::move(executable)) {}

 private:
  void Load(std::vector<DeviceConfig> devices);
  void PlaceConstants();
  std::unique_ptr<Program> MakeProgram(bool instrumented);
  const bytecode::FuncInfo& InfoOf(const std::string& function) const;
  struct Watchers {
    std::shared_ptr<const tvm::ffi::Function> instrument;  // may be null
    std::shared_ptr<Profile> profile;                      // may be null
  };
  Watchers CurrentWatchers() const;
  // New calls run the instrumented program while an instrument or a profile is set.
  void SelectProgram();
  int RunProfiled(CallContext* context, const Insn* ip, const Slot* args, Slot* result,
                  Profile* profile);
  // The instrument's second call for a call that replaced its frame.
  void AfterTailCall(const TailChain::Call& call, const tvm::ffi::Any& result) const;

  tvm::ffi::ObjectPtr<ExecutableModule> executable_;
  std::vector<std::shared_ptr<runtime::MemoryPool>> pools_;
  std::atomic<int> num_threads_{1};
  std::atomic<int64_t> time_limit_ns_{0};
  std::atomic<int64_t> stack_bytes_{int64_t{64} << 20};  // kDefaultStackBytes of call_context.h
  std::unique_ptr<Program> plain_, instrumented_;
  std::atomic<const Program*> current_{nullptr};
  std::vector<tvm::ffi::Any> constants_;  // where programs use them
  std::unordered_set<const tvm::ffi::Object*> constant_tensors_;

  mutable std::mutex mutex_;  // guards all below
  std::shared_ptr<const tvm::ffi::Function> instrument_;
  std::shared_ptr<Profile> profile_;
  std::map<std::string, std::vector<tvm::ffi::Any>> inputs_;
  std::map<std::string, tvm::ffi::Any> outputs_;
  std::map<std::string, tvm::ffi::Function> saved_;
  // (constant as programs use it, device) -> copy
  std::map<std::tuple<const tvm::ffi::Object*, int, int>, tvm::ffi::Tensor> constant_copies_;
};

// The object behind a VM, as a value of module type.
TVMFFIObject* VMModuleObject(VirtualMachine* vm);
// A function of `vm` that does not keep it alive: for the VM's own tables.
tvm::ffi::Function WeakFunction(VirtualMachine* vm, int64_t func_index);

// How a VM finds functions of the global registry; set once by embed/.
using GlobalFunctionFinder = std::optional<tvm::ffi::Function> (*)(const std::string& name);
void SetGlobalFunctionFinder(GlobalFunctionFinder finder);
std::optional<tvm::ffi::Function> FindGlobalFunction(const std::string& name);

}  // namespace relaxvm::vm
