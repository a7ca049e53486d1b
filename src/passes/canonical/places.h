// SPDX-License-Identifier: Apache-2.0
// Where every tensor of a module lies, as far as types, to_vdevice and hint_on_device say: a tensor
// lies where its operator runs, and an operator runs where its tensors lie.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/module.h"

namespace relaxvm::passes {

namespace ffi = tvm::ffi;

// The places of a value: one for a tensor, those of the fields for a tuple, none for the rest.
struct Place {
  int slot = -1;  // of a tensor; -1: no tensor
  std::vector<Place> fields;
};

// The devices of a module in the order in which a virtual machine is given them.
class DeviceList {
 public:
  explicit DeviceList(const ir::IRModule& mod);
  // Its place in the list; a device that the module does not list is added at the end.
  int IndexOf(const ir::VDevice& device);
  const ir::VDevice& operator[](int index) const { return devices_[static_cast<size_t>(index)]; }
  bool empty() const { return devices_.empty(); }
  // `mod` with this list.
  ir::IRModule WriteTo(ir::IRModule mod) const;

 private:
  std::vector<ir::VDevice> devices_;
  bool has_grown_ = false;
};

class Places {
 public:
  Places(const ir::IRModule& mod, DeviceList* devices);

  // What is known of a variable, a parameter or a leaf of normal form; constants have no place.
  Place Of(const ir::Expr& leaf) const;
  // Parameters and result of a function of the module.
  const std::vector<Place>* ParamsOf(const ir::GlobalVarObj* func) const;
  const Place* ResultOf(const ir::GlobalVarObj* func) const;
  // Where a call runs; -1 when nothing says it.
  int DeviceOf(const ir::CallObj* call, const ir::Var& result) const;
  // The device of a slot; -1 when nothing says it.
  int DeviceOf(int slot) const;

 private:
  friend class PlaceFinder;
  int NewSlot(int device);
  // `devices` null: whatever device the type names.
  Place PlaceOfType(const ir::Type& type, DeviceList* devices);
  int Find(int slot) const;
  void Unify(const Place& a, const Place& b);
  void Fix(const Place& place, int device);

  mutable std::vector<int> parent_;
  std::vector<int> device_;  // of a root; -1: not known
  std::unordered_map<const ffi::Object*, Place> places_;
  std::unordered_map<const ffi::Object*, std::vector<Place>> params_;
  std::unordered_map<const ffi::Object*, Place> results_;
};

// Whether a call runs where its tensors lie: operators and tensor programs, in contrast to packed
// functions, closures and what only asks for sizes.
bool RunsWhereTensorsLie(const ir::CallObj* call);

// The tensors that such a call reads, constants included: arguments, and fields of tuples.
std::vector<ir::Expr> TensorArguments(const ir::CallObj* call);

}  // namespace relaxvm::passes
