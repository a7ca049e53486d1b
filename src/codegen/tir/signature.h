// SPDX-License-Identifier: Apache-2.0
// How a tensor program is called: its parameters by kind, where its symbolic sizes come from, what
// must hold between them.
#pragma once

#include <string>
#include <vector>

#include "tir/stmt.h"

namespace relaxvm::codegen {

// size = dimension `dim` of tensor parameter `tensor`
struct SizeBinding {
  ir::Var size;
  int tensor;
  int dim;
};

// dimension `dim` of tensor parameter `tensor` must be `value`
struct SizeCheck {
  int tensor;
  int dim;
  ir::Expr value;
};

struct Signature {
  std::string name;    // for messages
  std::string params;  // a letter for each parameter: 't', 'i', 'f'
  std::vector<tir::Buffer> tensors;
  std::vector<ir::Var> scalars;
  std::vector<SizeBinding> sizes;  // sizes that are no scalar parameters
  std::vector<SizeCheck> checks;
  int num_outputs = 1;  // the last of `tensors`
};

// Throws ValueError when a size is bound by no parameter.
Signature SignatureOf(const tir::PrimFunc& func, const std::string& name);

}  // namespace relaxvm::codegen
