// SPDX-License-Identifier: Apache-2.0
// What becomes visible to Python, by folder.  relaxvm_init (init.cc) calls these once, parents
// before children: tvm-ffi collects the fields of a class from its parents when the class is
// registered.
#pragma once

namespace relaxvm::api {

void RegisterTypes();           // Span, types, global infos
void RegisterExpressions();     // expressions of the graph language
void RegisterScalars();         // scalar expressions, their makers
void RegisterModules();         // bindings, blocks, functions, modules
void RegisterTensorPrograms();  // statements and buffers of the loop language
void RegisterIndexMaps();
void RegisterTensorExpressions();
void RegisterBuilder();          // BlockBuilder
void RegisterOperators();        // the table of operators, MakeCall
void RegisterScript();           // printing, and what the parser needs
void RegisterPipeline();         // compilation
void RegisterPatterns();         // patterns, matching, rewriting
void RegisterPasses();           // the table of passes
void RegisterAnalysis();         // questions about types and variables
void RegisterProgramAnalysis();  // questions about whole functions, modules and tensor programs
void RegisterAnalyzer();         // facts about integer expressions
void RegisterReprs();            // how nodes print inside of containers; after all types

}  // namespace relaxvm::api
