// SPDX-License-Identifier: Apache-2.0
// A list of values that never changes: appending gives a new list that shares the storage of the
// old one, in constant time as long as the old one is the longest of its storage.
#pragma once

#include <tvm/ffi/any.h>
#include <tvm/ffi/object.h>

#include <memory>
#include <mutex>
#include <vector>

namespace relaxvm::vm {

class SequenceObj : public tvm::ffi::Object {
 public:
  struct Storage {
    std::mutex mutex;  // guards `items`; those below a sequence's size do not change
    std::vector<tvm::ffi::Any> items;
  };

  explicit SequenceObj(std::vector<tvm::ffi::Any> items = {});

  size_t size() const { return size_; }
  tvm::ffi::Any At(size_t i) const;
  std::vector<tvm::ffi::Any> Items() const;

  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.Sequence", SequenceObj, tvm::ffi::Object);

 private:
  friend class Sequence;
  std::shared_ptr<Storage> storage_;
  size_t size_;
};

class Sequence : public tvm::ffi::ObjectRef {
 public:
  explicit Sequence(std::vector<tvm::ffi::Any> items);
  Sequence Append(tvm::ffi::Any item) const;
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Sequence, tvm::ffi::ObjectRef, SequenceObj);
};

}  // namespace relaxvm::vm
