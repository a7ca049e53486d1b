// SPDX-License-Identifier: Apache-2.0
// Functions that stand for one pattern of an external code generator ("Composite": "dnnl.conv2d"),
// and functions that are handed to one ("Codegen": "dnnl").
#pragma once

#include <functional>
#include <string>
#include <unordered_set>

#include "ir/module.h"

namespace relaxvm::passes {

inline constexpr const char* kComposite = "Composite";
inline constexpr const char* kCodegen = "Codegen";

// Does the function belong to a code generator already, or to a fused group?
bool IsComposite(const ir::FunctionObj* func);
// "dnnl" of "dnnl.conv2d"; empty when the function is no composite one.
std::string CodegenOf(const ir::FunctionObj* func);
// `composite` as a local function: with nothing but its pattern's name.
ir::Function AsLocal(const ir::Function& composite);
// The functions of a module that an expression names.
std::unordered_set<std::string> NamesIn(const ir::Expr& e);
// Every composite function that is called becomes an exported function for its code generator,
// called <name>_<codegen>, around a local one.
ir::IRModule ExportComposites(ir::IRModule mod);
// Without those functions among the ones that `may_go` names which no Relax function names.
ir::IRModule WithoutUnused(
    const ir::IRModule& mod,
    const std::function<bool(const ir::GlobalVar&, const ir::BaseFunc&)>& may_go);
// Without private composite functions that nobody calls.
ir::IRModule RemoveUnusedComposites(const ir::IRModule& mod);

}  // namespace relaxvm::passes
