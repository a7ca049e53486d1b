// SPDX-License-Identifier: Apache-2.0
// The printer, split over graph.cc, scalar.cc, tensor_program.cc and value.cc.  Text is appended
// line by line; a program of any length takes constant stack.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/data_type.h"
#include "ir/prim.h"
#include "script/print.h"
#include "tir/index_map.h"
#include "tir/stmt.h"

namespace relaxvm::script {

using ir::Expr;
using ir::Type;
using ir::Var;
using tir::Stmt;

// How tightly an expression binds, loosest first.
enum Precedence : int {
  kLoose = 0,
  kOr = 1,
  kAnd = 2,
  kNot = 3,
  kCompare = 4,
  kAdd = 10,
  kMul = 11,
  kUnary = 12,
  kAtom = 20
};

class Printer {
 public:
  explicit Printer(const PrintOptions& options) : options_(options) {}

  std::string Module(const ir::IRModuleObj* mod);
  std::string Function(const ir::BaseFunc& func);  // on its own, without a module
  std::string Fragment(const ffi::Any& what);  // an expression, type, binding, block or statement

 private:
  // ---- text
  void Line(const std::string& text);  // pending declarations first
  void Blank();
  class Indent;

  // ---- names: unique in a function, Python identifiers
  std::string FreshName(const std::string& hint);
  std::string Define(const ffi::Object* var, const std::string& hint);
  void DefineAs(const ffi::Object* var, const std::string& name) { names_[var] = name; }
  bool IsDefined(const ffi::Object* var) const { return names_.count(var) != 0; }
  std::string NameOf(
      const Var& var);  // an undefined variable is declared in front of the line being made
  void StartFunction();

  // ---- scalar.cc
  std::string Scalar(const Expr& e, int context = kLoose);
  std::string Binary(const ir::BinaryObj* b, int context);
  std::string Operand(const Expr& e, const Expr& other, int context);
  std::string Literal(const Expr& imm, bool bare);
  std::string Intrinsic(const ir::IntrinObj* i);
  std::string TensorProgramCall(const ir::CallObj* call);
  std::string Scalars(const ffi::Array<Expr>& list);
  std::string Tuple(const ffi::Array<Expr>& list);    // "(a,)"
  std::string Indices(const ffi::Array<Expr>& list);  // "a, b"

  // ---- value.cc
  std::string MapText(const tir::IndexMap& map);
  std::string AnyValue(const ffi::Any& value);
  std::string Dictionary(const ir::DictAttrs& attrs,
                         const std::unordered_set<std::string>& without = {});
  std::string ConstantValue(const ffi::Tensor& data);
  std::string Metadata() const;

  // ---- graph.cc
  std::string TypeText(const Type& type);
  std::string TensorTypeText(const ir::TensorTypeObj* t);
  std::string FuncTypeText(const ir::FuncTypeObj* f);
  std::string Dim(const Expr& e);
  std::string Dims(const ffi::Array<Expr>& dims, const char* open, const char* close);
  std::string DeviceText(const ir::VDevice& device);
  std::string Value(const Expr& e);
  std::string Values(const ffi::Array<Expr>& list);  // "a, b"
  std::string TupleText(const ffi::Array<Expr>& fields);
  std::string CallText(const ir::CallObj* call);
  std::string OperatorCall(const ir::CallObj* call, const std::string& name);
  std::string DestinationCall(const ir::CallObj* call, const std::string& name);
  std::string OutTypes(const ffi::Array<Type>& types);
  std::string AttrArguments(const ir::CallObj* call);
  void GraphFunction(const ir::FunctionObj* func, const std::string& name, bool local,
                     const std::string& in_module);
  void Body(const ir::SeqExprObj* seq);
  void Blocks(const ffi::Array<ir::BindingBlock>& blocks);
  void DataflowBlock(const ir::BindingBlock& block);
  void Binding(const ir::Binding& binding);
  void Branch(const ir::SeqExprObj* seq, const std::string& result);
  void Conditional(const ir::IfObj* branch, const Var& var);
  void Cases(const ir::MatchObj* match, const Var& var);
  void DataType(const ir::AdtDefObj* adt);
  std::string AdtTypeText(const ir::AdtTypeObj* adt);
  std::string Annotation(const Var& var, const Expr& value);

  // ---- tensor_program.cc
  void TensorProgram(const tir::PrimFuncObj* func, const std::string& name,
                     const std::string& in_module);
  std::string BufferArguments(const tir::BufferTypeObj* type);
  void Statement(const Stmt& s);
  void StatementOrPass(const Stmt& s);
  void Loop(const Stmt& s);
  std::string Range(const Expr& min, const Expr& extent);
  void Block(const tir::SBlockRealizeObj* realize);
  void Axes(const tir::SBlockRealizeObj* realize);
  std::string Region(const tir::BufferRegion& region);
  std::string Regions(const ffi::Array<tir::BufferRegion>& regions);
  void OtherStatement(const Stmt& s);

  const PrintOptions options_;
  std::string out_;
  int indent_ = 0;
  bool in_program_ =
      false;  // bare integers are int32 in tensor programs, int64 in the graph language
  bool in_header_ = false;  // dimensions that name variables are strings
  bool fragment_ = false;   // names are all there is: nothing is declared
  bool uses_cls_ = false;
  const ir::IRModuleObj* mod_ = nullptr;
  std::unordered_map<const ffi::Object*, std::string> names_;
  std::unordered_map<std::string, int> used_;  // name -> next number
  std::vector<Var> header_vars_;               // symbolic variables that the signature defines
  std::vector<std::string> pending_;           // declarations to print before the next line
  std::unordered_map<const ffi::Object*, const tir::ForObj*>
      loops_;                                            // enclosing loops, by variable
  std::vector<ffi::Tensor> large_;                       // constants that stand in the metadata
  std::unordered_map<const void*, size_t> large_index_;  // by address of the data
};

class Printer::Indent {
 public:
  explicit Indent(Printer* p) : p_(p) { p_->indent_ += 4; }
  ~Indent() { p_->indent_ -= 4; }

 private:
  Printer* p_;
};

std::string Quoted(std::string_view text);  // a Python string literal
std::string FloatText(
    double value);  // shortest text that reads back the same; always with '.' or an exponent
std::string Join(const std::vector<std::string>& parts, const char* separator = ", ");

}  // namespace relaxvm::script
