// SPDX-License-Identifier: Apache-2.0
// Tuples and algebraic data types.
#include <tvm/ffi/container/array.h>

#include "vm/adt.h"
#include "vm/builtins/builtins.h"

namespace relaxvm::vm {
namespace ffi = tvm::ffi;

// Long chains, such as lists, are taken apart here: the destructor of each cell would run inside
// the one before.
ADTObj::~ADTObj() {
  std::vector<ffi::Any> pending = std::move(fields);
  while (!pending.empty()) {
    ffi::Any value = std::move(pending.back());
    pending.pop_back();
    if (value.type_index() != ADTObj::RuntimeTypeIndex()) continue;
    ffi::ObjectRef cell = std::move(value).cast<ffi::ObjectRef>();
    if (!cell.unique()) continue;
    auto* object = const_cast<ADTObj*>(static_cast<const ADTObj*>(cell.get()));
    for (ffi::Any& field : object->fields) pending.push_back(std::move(field));
    object->fields.clear();
  }
}

namespace builtins {
namespace {

const TVMFFISeqCell& Tuple(const Args& args) {
  if (args[0].type_index != kTVMFFIArray && args[0].type_index != kTVMFFIList)
    args.WrongType(0, "a tuple");
  return *reinterpret_cast<const TVMFFISeqCell*>(reinterpret_cast<const char*>(args[0].v_obj) +
                                                 sizeof(TVMFFIObject));
}

size_t CheckedIndex(const Args& args, size_t size) {
  int64_t index = args.Int(1);
  if (index < 0 || static_cast<size_t>(index) >= size) {
    Fail(ErrorKind::kIndexError, "field ", index, " of ", DescribeValue(args[0]), ", which has ",
         size);
  }
  return static_cast<size_t>(index);
}

const ADTObj& Adt(const Args& args) {
  if (args[0].type_index != ADTObj::RuntimeTypeIndex())
    args.WrongType(0, "a value of an algebraic data type");
  return *static_cast<const ADTObj*>(
      ffi::detail::ObjectUnsafe::RawObjectPtrFromUnowned<ffi::Object>(args[0].v_obj));
}

}  // namespace

void MakeTuple(Args args, ffi::Any* result) {
  ffi::Array<ffi::Any> fields;
  fields.reserve(args.size);
  for (int32_t i = 0; i < args.size; ++i) fields.push_back(args.view(i));
  *result = std::move(fields);
}

void TupleGetItem(Args args, ffi::Any* result) {
  const TVMFFISeqCell& tuple = Tuple(args);
  *result =
      static_cast<const ffi::Any*>(tuple.data)[CheckedIndex(args, static_cast<size_t>(tuple.size))];
}

void TupleResetItem(Args args, ffi::Any*) {
  const TVMFFISeqCell& tuple = Tuple(args);
  static_cast<ffi::Any*>(tuple.data)[CheckedIndex(args, static_cast<size_t>(tuple.size))] = nullptr;
}

void AllocADT(Args args, ffi::Any* result) {
  auto object = ffi::make_object<ADTObj>();
  object->tag = args.Int(0);
  object->fields.reserve(static_cast<size_t>(args.size - 1));
  for (int32_t i = 1; i < args.size; ++i) object->fields.push_back(args.view(i));
  *result =
      ffi::detail::ObjectUnsafe::ObjectRefFromObjectPtr<ADT>(ffi::ObjectPtr<ffi::Object>(object));
}

void GetTag(Args args, ffi::Any* result) { *result = Adt(args).tag; }

void HasTag(Args args, ffi::Any* result) { *result = Adt(args).tag == args.Int(1); }

void GetField(Args args, ffi::Any* result) {
  const ADTObj& adt = Adt(args);
  *result = adt.fields[CheckedIndex(args, adt.fields.size())];
}

}  // namespace builtins
}  // namespace relaxvm::vm
