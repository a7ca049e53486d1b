// SPDX-License-Identifier: Apache-2.0
// Names that TVM knows.
#include "bytecode/interchange.h"

#include <tvm/ffi/container/tensor.h>

#include <unordered_set>

#include "bytecode/builtins.h"
#include "bytecode/constants.h"
#include "support/error.h"

namespace relaxvm::bytecode {
namespace ffi = tvm::ffi;
namespace {

// TVM 0.27 refuses its own files when they hold an empty tensor with a first dimension that is not.
bool IsUnreadable(const ffi::Any& constant) {
  auto tensor = constant.as<ffi::Tensor>();
  return tensor && tensor->numel() == 0 && tensor->shape()[0] != 0;
}

}  // namespace

bool IsTvmBuiltin(std::string_view name) {
  static const std::unordered_set<std::string_view> names = {
#define TVM_BUILTIN(name) name,
#include "bytecode/tvm_builtins.def"
#undef TVM_BUILTIN
  };
  return names.contains(name);
}

void CheckRunsInTvm(const ExecutableData& data,
                    const std::function<bool(const std::string&)>& is_linked) {
  std::string compiled, unknown, unreadable;
  auto add = [](std::string* list, const std::string& name) {
    *list += (list->empty() ? "" : ", ") + name;
  };
  for (const FuncInfo& info : data.func_table) {
    if (info.kind == FuncKind::kVMTIRFunc) add(&compiled, info.name);
    bool is_ours = info.kind == FuncKind::kPackedFunc && FindBuiltin(info.name).has_value();
    if (is_ours && !IsTvmBuiltin(info.name) && !is_linked(info.name)) add(&unknown, info.name);
  }
  for (const ffi::Any& constant : data.constants) {
    if (IsUnreadable(constant)) add(&unreadable, DescribeConstant(constant));
  }
  if (!unknown.empty()) {
    Fail(ErrorKind::kNotImplementedError, "interchange=\"tvm\": TVM has no builtin ", unknown,
         "; express it otherwise, or leave interchange out to run the file here");
  }
  if (!compiled.empty()) {
    Fail(ErrorKind::kNotImplementedError, "interchange=\"tvm\": TVM cannot run the native code of ",
         compiled, "; compile with exec_mode=\"bytecode\"");
  }
  if (!unreadable.empty()) {
    Fail(ErrorKind::kNotImplementedError, "interchange=\"tvm\": TVM 0.27 cannot load the constant ",
         unreadable, "; give the empty dimension first");
  }
}

}  // namespace relaxvm::bytecode
