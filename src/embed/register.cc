// SPDX-License-Identifier: Apache-2.0
// What Python and other tvm-ffi clients see of the runtime: global functions relaxvm.*, and the
// type keys.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include "bytecode/builtins.h"
#include "bytecode/serialize.h"
#include "runtime/device.h"
#include "runtime/kernel_context.h"
#include "runtime/memory_pool.h"
#include "runtime/null_device.h"
#include "runtime/platform/cpus.h"
#include "runtime/platform/library.h"
#include "runtime/tensor.h"
#include "runtime/weights_file.h"
#include "support/error.h"
#include "support/flags.h"
#include "vm/adt.h"
#include "vm/builtins/table.h"
#include "vm/executable_module.h"
#include "vm/kv_cache.h"
#include "vm/measure.h"
#include "vm/sequence.h"
#include "vm/virtual_machine.h"

namespace relaxvm::embed {
namespace {

namespace ffi = tvm::ffi;

std::optional<ffi::Function> FindGlobal(const std::string& name) {
  return ffi::Function::GetGlobal(name);
}

ffi::Module LoadModule(ffi::String path, ffi::String weights, ffi::String kernels,
                       bool verify_weights) {
  return vm::LoadExecutable(std::string(path),
                            {std::string(weights), std::string(kernels), verify_weights});
}

// (executable, (device type, device id, allocator, limit in bytes)...)
ffi::Module CreateVM(ffi::PackedArgs args) {
  if (args.size() < 1 || (args.size() - 1) % 4 != 0)
    Fail(ErrorKind::kTypeError, "a VM needs an executable and devices");
  vm::ExecutableModule* executable = nullptr;
  if (args[0].type_index() == kTVMFFIModule)
    executable = vm::ExecutableModule::From(args[0].cast<ffi::Module>());
  if (executable == nullptr)
    Fail(ErrorKind::kTypeError, "a VM needs an executable: the result of compile or load_module");
  std::vector<vm::DeviceConfig> devices;
  for (int i = 1; i < args.size(); i += 4) {
    DLDevice device{static_cast<DLDeviceType>(args[i].cast<int>()), args[i + 1].cast<int>()};
    int allocator = args[i + 2].cast<int>();
    if (allocator != 1 && allocator != 2)
      Fail(ErrorKind::kValueError, "allocator ", allocator, " is neither naive nor pooled");
    runtime::GetDeviceApi(device);  // refuses what does not exist
    devices.push_back(
        {device, static_cast<runtime::AllocatorKind>(allocator), args[i + 3].cast<int64_t>()});
  }
  auto machine = vm::VirtualMachine::Create(
      ffi::detail::ObjectUnsafe::ObjectPtrFromUnowned<vm::ExecutableModule>(executable),
      std::move(devices));
  return ffi::Module(ffi::ObjectPtr<ffi::ModuleObj>(machine));
}

ffi::Optional<ffi::Function> FindBuiltin(ffi::String name) {
  auto builtin = bytecode::FindBuiltin(std::string_view(name.data(), name.size()));
  if (!builtin) return std::nullopt;
  return vm::BuiltinAsFunction(*builtin);
}

// Rows of (name, signature, meaning).
ffi::Array<ffi::Array<ffi::String>> ListBuiltins() {
  ffi::Array<ffi::Array<ffi::String>> rows;
  for (const bytecode::BuiltinInfo& info : bytecode::AllBuiltins()) {
    rows.push_back({ffi::String(std::string(info.name)), ffi::String(std::string(info.signature)),
                    ffi::String(std::string(info.meaning))});
  }
  return rows;
}

ffi::Tensor Empty(ffi::Shape shape, DLDataType dtype, DLDevice device) {
  ffi::ShapeView dims(shape.data(), shape.size());
  if (runtime::IsHost(device)) {
    auto pool = runtime::MemoryPool::Create(device, runtime::AllocatorKind::kNaive);
    return runtime::EmptyTensor(pool, dims, dtype);
  }
  runtime::GetDeviceApi(device);
  return runtime::EmptyTensor(runtime::MemoryPool::Create(device, runtime::AllocatorKind::kNaive),
                              dims, dtype);
}

void CopyTensor(ffi::Tensor from, ffi::Tensor to) {
  runtime::CopyTensor(runtime::Raw(from), runtime::Raw(to));
}

// A tensor on `device`; the tensor itself when it is there.
ffi::Tensor CopyTo(ffi::Tensor tensor, DLDevice device) {
  if (runtime::SameDevice(tensor.device(), device)) return tensor;
  ffi::Tensor copy =
      Empty(ffi::Shape(tensor.shape().begin(), tensor.shape().end()), tensor.dtype(), device);
  runtime::CopyTensor(runtime::Raw(tensor), runtime::Raw(copy));
  return copy;
}

// The same memory as elements of another type of the same size.
ffi::Tensor Reinterpret(ffi::Tensor tensor, DLDataType dtype) {
  if (dtype.bits * dtype.lanes != tensor.dtype().bits * tensor.dtype().lanes ||
      !tensor.IsContiguous()) {
    Fail(ErrorKind::kValueError,
         "only a contiguous tensor can be seen as elements of another type of the same size");
  }
  return runtime::MakeTensor(runtime::DataOf(runtime::Raw(tensor)), tensor.shape(), dtype,
                             tensor.device(), tensor);
}

// A view of memory that `owner` keeps: for read-only and memory-mapped arrays, which DLPack
// refuses.
ffi::Tensor FromAddress(int64_t address, ffi::Shape shape, DLDataType dtype, ffi::Any owner) {
  auto keep = owner.try_cast<ffi::ObjectRef>();
  return runtime::MakeTensor(reinterpret_cast<void*>(address), {shape.data(), shape.size()}, dtype,
                             DLDevice{kDLCPU, 0}, keep ? *keep : ffi::ObjectRef());
}

ffi::Map<ffi::String, int64_t> NullDeviceStats() {
  runtime::NullDeviceStats stats = runtime::GetNullDeviceStats();
  ffi::Map<ffi::String, int64_t> table;
  table.Set("num_launches", stats.num_launches);
  table.Set("num_copies", stats.num_copies);
  table.Set("num_syncs", stats.num_syncs);
  table.Set("num_queued", stats.num_queued);
  table.Set("num_allocs", stats.num_allocs);
  table.Set("num_frees", stats.num_frees);
  table.Set("num_failures", stats.num_failures);
  return table;
}

// What __tvm_ffi__library_bin holds when `executable` is linked into one library with its kernels.
ffi::Bytes PackExecutable(ffi::Module executable) {
  return ffi::Bytes(bytecode::PackExecutable(vm::ExecutableDataOf(executable)).Join());
}

// Bytes that Python lends are read where they lie.
ffi::Module ExecutableFromBytes(ffi::AnyView bytes) {
  std::string_view view;
  if (bytes.type_index() == kTVMFFIByteArrayPtr) {
    const TVMFFIByteArray* lent = bytes.cast<TVMFFIByteArray*>();
    view = {lent->data, lent->size};
    return vm::LinkExecutable(bytecode::Deserialize(view, "the executable"), {});
  }
  ffi::Bytes owned = bytes.cast<ffi::Bytes>();
  view = {owned.data(), owned.size()};
  return vm::LinkExecutable(bytecode::Deserialize(view, "the executable"), {});
}

vm::ADT MakeAdt(int64_t tag, ffi::Array<ffi::Any> fields) {
  auto object = ffi::make_object<vm::ADTObj>();
  object->tag = tag;
  object->fields.assign(fields.begin(), fields.end());
  return ffi::detail::ObjectUnsafe::ObjectRefFromObjectPtr<vm::ADT>(
      ffi::ObjectPtr<ffi::Object>(object));
}

}  // namespace

void Register() {
  // Indices of types are handed out without a lock: ask for ours while one thread loads the
  // library.
  runtime::StorageObj::RuntimeTypeIndex();
  vm::ADTObj::RuntimeTypeIndex();
  vm::KVCacheObj::RuntimeTypeIndex();
  runtime::WeightsFileObj::RuntimeTypeIndex();
  vm::SequenceObj::RuntimeTypeIndex();
  vm::SetGlobalFunctionFinder(FindGlobal);
  namespace refl = tvm::ffi::reflection;
  refl::ObjectDef<runtime::StorageObj>();
  refl::ObjectDef<runtime::WeightsFileObj>();
  refl::ObjectDef<vm::KVCacheObj>().def_ro("fill_count", &vm::KVCacheObj::fill_count);
  refl::ObjectDef<vm::SequenceObj>();
  refl::ObjectDef<vm::ADTObj>().def_ro("tag", &vm::ADTObj::tag);
  refl::GlobalDef()
      .def("relaxvm.runtime.make_adt", MakeAdt)
      .def("relaxvm.runtime.adt_fields", [](vm::ADT value) {
        return ffi::Array<ffi::Any>(value->fields.begin(), value->fields.end());
      });
  refl::GlobalDef()
      .def("relaxvm.runtime.load_module", LoadModule)
      .def("relaxvm.runtime.empty", Empty)
      .def("relaxvm.runtime.copy", CopyTensor)
      .def("relaxvm.runtime.copy_to", CopyTo)
      .def("relaxvm.runtime.from_address", FromAddress)
      .def("relaxvm.runtime.reinterpret", Reinterpret)
      .def("relaxvm.runtime.device_name",
           [](DLDevice device) { return runtime::DeviceName(device); })
      .def("relaxvm.runtime.device_exists",
           [](DLDevice device) {
             runtime::DeviceApi* api = runtime::FindDeviceApi(device.device_type);
             return api != nullptr && api->Exists(device.device_id);
           })
      .def("relaxvm.runtime.synchronize",
           [](DLDevice device) {
             runtime::GetDeviceApi(device)->Synchronize(device.device_id, nullptr);
           })
      // (device, function, what Measure takes...): seconds of a call, for each repeat
      .def_packed("relaxvm.runtime.time_function",
                  [](ffi::PackedArgs args, ffi::Any* result) {
                    if (args.size() < 2)
                      Fail(ErrorKind::kTypeError, "time_function needs a device and a function");
                    const auto device = args[0].cast<DLDevice>();
                    runtime::DeviceApi* api = runtime::GetDeviceApi(device);
                    *result = vm::Measure(
                        args[1].cast<ffi::Function>(), args.Slice(2),
                        {.synchronize = [&] { api->Synchronize(device.device_id, nullptr); }});
                  })
      .def("relaxvm.runtime.null_device_stats", NullDeviceStats)
      .def("relaxvm.runtime.num_usable_cpus", runtime::NumUsableCpus)
      // What code for this machine depends on besides the features that its CPU names: sizes of
      // caches, and whether this process may use matrix registers, which the system grants.
      .def("relaxvm.runtime.describe_machine",
           [] {
             const runtime::CacheSizes sizes = runtime::ReadCacheSizes();
             const bool matrices = runtime::MissingCpuFeatures("+amx-tile").empty();
             return ffi::String("l1 " + std::to_string(sizes.l1) + " l2 " +
                                std::to_string(sizes.l2) + " l3 " + std::to_string(sizes.l3) +
                                (matrices ? " matrix registers" : ""));
           })
      .def("relaxvm.runtime.default_num_threads", runtime::DefaultNumThreads)
      .def("relaxvm.runtime.check_library",
           [](ffi::String path) { runtime::CheckSharedLibrary(std::string(path)); })
      .def("relaxvm.runtime.seal_library",
           [](ffi::String path) { runtime::SealSharedLibrary(std::string(path)); })
      .def("relaxvm.runtime.trim_all_pools", runtime::TrimAllPools)
      .def("relaxvm.runtime.unknown_flags",
           [] {
             ffi::Array<ffi::String> names;
             for (const std::string& name : UnknownFlags()) names.push_back(name);
             return names;
           })
      .def("relaxvm.runtime.version", [] { return ffi::String(RELAXVM_VERSION); })
      .def_packed("relaxvm.vm.create",
                  [](ffi::PackedArgs args, ffi::Any* result) { *result = CreateVM(args); })
      .def("relaxvm.vm.find_builtin", FindBuiltin)
      .def("relaxvm.vm.list_builtins", ListBuiltins)
      .def("relaxvm.vm.pack_executable", PackExecutable)
      .def("relaxvm.vm.executable_from_bytes", ExecutableFromBytes)
      .def("relaxvm.vm.executable_to_bytes",
           [](ffi::Module executable) {
             return ffi::Bytes(bytecode::Serialize(vm::ExecutableDataOf(executable)).Join());
           })
      .def("relaxvm.vm.save_executable",
           [](ffi::Module executable, ffi::String path, ffi::String weights, ffi::String kernels) {
             vm::SaveExecutable(executable, std::string(path),
                                {std::string(weights), std::string(kernels)});
           })
      .def("relaxvm.vm.import_module", [](ffi::Module into, ffi::Module import) {
        const_cast<ffi::ModuleObj*>(into.operator->())->ImportModule(import);
      });
}

TVM_FFI_STATIC_INIT_BLOCK() { Register(); }

}  // namespace relaxvm::embed
