// SPDX-License-Identifier: Apache-2.0
// The functions that a VM offers by name besides those of its executable.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include <chrono>

#include "support/error.h"
#include "vm/measure.h"
#include "vm/own_results.h"
#include "vm/virtual_machine.h"

namespace relaxvm::vm {
namespace ffi = tvm::ffi;
namespace {

using VMPtr = ffi::ObjectPtr<VirtualMachine>;

std::vector<ffi::Any> Rest(const ffi::PackedArgs& args, int first) {
  std::vector<ffi::Any> values;
  for (int i = first; i < args.size(); ++i) values.push_back(args[i]);
  return values;
}

std::vector<int64_t> Path(const ffi::PackedArgs& args) {
  std::vector<int64_t> path;
  for (int i = 1; i < args.size(); ++i) path.push_back(args[i].cast<int64_t>());
  return path;
}

std::string Text(const ffi::PackedArgs& args, int i) {
  if (i >= args.size()) Fail(ErrorKind::kTypeError, "argument ", i, " is missing");
  return std::string(args[i].cast<ffi::String>());
}

void SetInput(const VMPtr& vm, ffi::PackedArgs args, ffi::Any*) {
  vm->SetInput(Text(args, 0), Rest(args, 1));
}

// (function, inputs..., module): the parameters that the module gives are the last input, a tuple.
void SetInputWithParamModule(const VMPtr& vm, ffi::PackedArgs args, ffi::Any*) {
  std::vector<ffi::Any> values = Rest(args, 1);
  auto module = values.empty() ? std::nullopt : values.back().as<ffi::Module>();
  auto get_params = module ? (*module)->GetFunction("get_params") : std::nullopt;
  if (!get_params) {
    Fail(ErrorKind::kTypeError,
         "the last input must be a module with a function get_params, as "
         "vm.builtin.param_module_from_cache makes it");
  }
  values.back() = (*get_params)();
  vm->SetInput(Text(args, 0), std::move(values));
}

void InvokeStateful(const VMPtr& vm, ffi::PackedArgs args, ffi::Any*) {
  vm->InvokeStateful(Text(args, 0));
}

void GetOutput(const VMPtr& vm, ffi::PackedArgs args, ffi::Any* result) {
  *result = vm->GetOutput(Text(args, 0), Path(args));
}

void GetOutputArity(const VMPtr& vm, ffi::PackedArgs args, ffi::Any* result) {
  *result = vm->GetOutputArity(Text(args, 0), Path(args));
}

// (function, saved name, include_return, args...)
void SaveFunction(const VMPtr& vm, ffi::PackedArgs args, ffi::Any*) {
  std::string function = Text(args, 0), saved_name = Text(args, 1);
  if (args.size() < 3) Fail(ErrorKind::kTypeError, "save_function needs include_return");
  vm->SaveFunction(function, saved_name, Rest(args, 3), args[2].cast<bool>());
}

void InvokeClosure(const VMPtr& vm, ffi::PackedArgs args, ffi::Any* result) {
  if (args.size() == 0 || args[0].type_index() != kTVMFFIFunction) {
    Fail(ErrorKind::kTypeError, "invoke_closure needs a closure or a function");
  }
  args[0].cast<ffi::Function>().CallPacked(args.data() + 1, args.size() - 1, result);
}

void SetInstrument(const VMPtr& vm, ffi::PackedArgs args, ffi::Any*) {
  if (args.size() != 1) Fail(ErrorKind::kTypeError, "set_instrument takes a function or None");
  vm->SetInstrument(args[0].type_index() == kTVMFFINone ? ffi::Function(nullptr)
                                                        : args[0].cast<ffi::Function>());
}

void GetFunctionArity(const VMPtr& vm, ffi::PackedArgs args, ffi::Any* result) {
  const bytecode::FuncInfo* info = vm->data().FindFunction(Text(args, 0));
  if (info == nullptr) Fail(ErrorKind::kValueError, "Unknown function: ", Text(args, 0));
  *result = info->num_args;
}

void GetFunctionParamName(const VMPtr& vm, ffi::PackedArgs args, ffi::Any* result) {
  const bytecode::FuncInfo* info = vm->data().FindFunction(Text(args, 0));
  if (info == nullptr) Fail(ErrorKind::kValueError, "Unknown function: ", Text(args, 0));
  int64_t index = args.size() > 1 ? args[1].cast<int64_t>() : -1;
  if (index < 0 || index >= static_cast<int64_t>(info->param_names.size())) {
    Fail(ErrorKind::kIndexError, "function ", info->name, " has no parameter name ", index);
  }
  *result = ffi::String(info->param_names[static_cast<size_t>(index)]);
}

// Statistics of the pool of one device.
void MemoryStats(const VMPtr& vm, ffi::PackedArgs args, ffi::Any* result) {
  runtime::MemoryStats stats = vm->pool(args.size() > 0 ? args[0].cast<int64_t>() : 0)->Stats();
  ffi::Map<ffi::String, int64_t> table;
  table.Set("used_bytes", stats.used_bytes);
  table.Set("peak_used_bytes", stats.peak_used_bytes);
  table.Set("reserved_bytes", stats.reserved_bytes);
  table.Set("peak_reserved_bytes", stats.peak_reserved_bytes);
  table.Set("num_allocs", stats.num_allocs);
  table.Set("num_device_allocs", stats.num_device_allocs);
  *result = table;
}

void ResetPeakMemory(const VMPtr& vm, ffi::PackedArgs args, ffi::Any*) {
  vm->pool(args.size() > 0 ? args[0].cast<int64_t>() : 0)->ResetPeak();
}

void TrimMemory(const VMPtr& vm, ffi::PackedArgs, ffi::Any* result) {
  int64_t freed = 0;
  for (size_t i = 0; i < vm->num_devices(); ++i) freed += vm->pool(static_cast<int64_t>(i))->Trim();
  *result = freed;
}

// (bytes, device)
void SetMemoryLimit(const VMPtr& vm, ffi::PackedArgs args, ffi::Any*) {
  if (args.size() < 1) Fail(ErrorKind::kTypeError, "set_memory_limit needs a number of bytes");
  vm->pool(args.size() > 1 ? args[1].cast<int64_t>() : 0)->SetLimit(args[0].cast<int64_t>());
}

// (function name, number of results, what makes one value of several)
void MakeOwningFunction(const VMPtr& vm, ffi::PackedArgs args, ffi::Any* result) {
  if (args.size() != 3)
    Fail(ErrorKind::kTypeError, "own_results needs a name, a number, a function");
  std::string name = Text(args, 0);
  auto function = vm->FindFunction(name);
  if (!function) Fail(ErrorKind::kValueError, "Unknown function: ", name);
  *result = OwnResults(vm.get(), function.value(), args[1].cast<int64_t>(),
                       args[2].cast<ffi::Function>());
}

void SetNumThreads(const VMPtr& vm, ffi::PackedArgs args, ffi::Any*) {
  if (args.size() != 1) Fail(ErrorKind::kTypeError, "set_num_threads needs a number");
  vm->set_num_threads(args[0].cast<int>());
}

// (bytes): most memory for the registers of a call and of all calls below it
void SetStackLimit(const VMPtr& vm, ffi::PackedArgs args, ffi::Any*) {
  if (args.size() != 1) Fail(ErrorKind::kTypeError, "set_stack_limit needs a number of bytes");
  vm->set_stack_bytes(args[0].cast<int64_t>());
}

// (milliseconds): most time for each call from outside; 0 is no limit
void SetTimeLimit(const VMPtr& vm, ffi::PackedArgs args, ffi::Any*) {
  double limit_ms = args.size() == 1 ? args[0].cast<double>() : -1;
  if (!(limit_ms >= 0 && limit_ms < 1e12))
    Fail(ErrorKind::kValueError, "set_time_limit needs milliseconds, 0 for none");
  vm->set_time_limit_ns(static_cast<int64_t>(limit_ms * 1e6));
}

// Arrays (function name, kind, start ns, duration ns, bytes, operations or None, what is
// multiplied, thread, depth, arguments), in order of their end; then how many were not kept.
void EndProfile(const VMPtr& vm, ffi::PackedArgs, ffi::Any* result) {
  std::shared_ptr<const Profile> profile = vm->EndProfile();
  ffi::Array<ffi::Any> rows;
  for (const ProfileEvent& event : profile->events()) {
    size_t func = static_cast<size_t>(event.func_index);
    const bytecode::FuncInfo& info = vm->data().func_table[func];
    const char* kind = "packed";
    if (info.kind != bytecode::FuncKind::kPackedFunc) {
      kind = "function";
    } else if (profile->functions()[func].kernel_params != nullptr) {
      kind = "kernel";
    } else if (bytecode::FindBuiltin(info.name)) {
      kind = "builtin";
    }
    const runtime::KernelWork* work = profile->functions()[func].work;
    const std::string products = work != nullptr ? work->products() : "";
    ffi::Any operations = event.operations >= 0 ? ffi::Any(event.operations) : ffi::Any(nullptr);
    rows.push_back(ffi::Array<ffi::Any>{ffi::String(info.name), ffi::String(kind), event.start_ns,
                                        event.duration_ns, event.num_bytes, operations,
                                        ffi::String(products), event.thread, event.depth,
                                        ffi::String(event.args)});
  }
  *result = ffi::Array<ffi::Any>{rows, profile->num_lost()};
}

// (function, what Measure takes...): seconds of a call, for each repeat
void TimeFunction(const VMPtr& vm, ffi::PackedArgs args, ffi::Any* result) {
  auto function = vm->FindFunction(Text(args, 0));
  if (!function) Fail(ErrorKind::kValueError, "Unknown function: ", Text(args, 0));
  *result = Measure(function.value(), args.Slice(1),
                    {.limit = std::chrono::nanoseconds(vm->time_limit_ns()),
                     .synchronize = [&] { vm->Synchronize(); }});
}

struct Row {
  const char* name;
  void (*function)(const VMPtr&, ffi::PackedArgs, ffi::Any*);
};
constexpr Row kRows[] = {
    {"begin_profile", [](const VMPtr& vm, ffi::PackedArgs, ffi::Any*) { vm->BeginProfile(); }},
    {"end_profile", EndProfile},
    {"get_function_arity", GetFunctionArity},
    {"get_function_param_name", GetFunctionParamName},
    {"get_output", GetOutput},
    {"get_output_arity", GetOutputArity},
    {"invoke_closure", InvokeClosure},
    {"invoke_stateful", InvokeStateful},
    {"memory_stats", MemoryStats},
    {"own_results", MakeOwningFunction},
    {"reset_peak_memory", ResetPeakMemory},
    {"save_function", SaveFunction},
    {"set_input", SetInput},
    {"set_input_with_param_module", SetInputWithParamModule},
    {"set_instrument", SetInstrument},
    {"set_memory_limit", SetMemoryLimit},
    {"set_num_threads", SetNumThreads},
    {"set_stack_limit", SetStackLimit},
    {"set_time_limit", SetTimeLimit},
    {"time_function", TimeFunction},
    {"trim_memory", TrimMemory},
};

}  // namespace

ffi::Optional<ffi::Function> VirtualMachine::GetFunction(const ffi::String& name) {
  if (auto function = FindFunction(std::string(name))) return function;
  for (const Row& row : kRows) {
    if (name != row.name) continue;
    VMPtr self = ffi::detail::ObjectUnsafe::ObjectPtrFromUnowned<VirtualMachine>(this);
    return ffi::Function::FromPacked(
        [self, call = row.function](ffi::PackedArgs args, ffi::Any* result) {
          call(self, args, result);
        });
  }
  return std::nullopt;
}

}  // namespace relaxvm::vm
