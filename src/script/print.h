// SPDX-License-Identifier: Apache-2.0
// Both languages as TVMScript: text that people read and the parser takes back.
#pragma once

#include <tvm/ffi/any.h>

#include <string>

#include "ir/module.h"

namespace relaxvm::script {

namespace ffi = tvm::ffi;

struct PrintOptions {
  std::string module_name = "Module";
  // Writes the contents of large constants in front; without them the text cannot be parsed back.
  bool show_meta = false;
};

// Text of a module, function, expression, type or statement.  Modules and functions come with a
// header that says where I, R and T are from.
std::string Print(const ffi::Any& what, const PrintOptions& options = {});

// The extent of [start, stop): what the parser makes of `A[start:stop]` and range(start, stop).
ir::Expr ExtentBetween(const ir::Expr& start, const ir::Expr& stop);

// The content of a CPU tensor as base64, and back.
std::string EncodeTensor(const ffi::Tensor& data);
void DecodeTensor(const std::string& text, const ffi::Tensor& data);

}  // namespace relaxvm::script
