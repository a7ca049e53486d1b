// SPDX-License-Identifier: Apache-2.0
// A walk that knows the extents of the loops around: every store counts its operations that often.
#include "analysis/work.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ir/prim.h"
#include "support/dtype.h"
#include "tir/functor.h"

namespace relaxvm::analysis {
namespace {

namespace ffi = tvm::ffi;
using ir::BinaryOp;
using ir::Expr;

// Annotation of a loop: how many operations it takes, where forms of it for parts of its sizes hide
// that.
constexpr const char* kOperations = "operations";

// How often something runs: a number times factors in postfix notation.
struct Times {
  int64_t number = 1;
  std::vector<std::string> factors;
  bool is_known = true;

  std::string Text() const {
    std::string text = std::to_string(number);
    for (const std::string& factor : factors) text += " " + factor + " *";
    return text;
  }
};

// Sums of numbers times factors: one term for each product of factors.
class Sum {
 public:
  void Add(int64_t number, const Times& times) {
    if (number == 0) return;
    if (!times.is_known) is_known_ = false;
    std::string key;
    for (const std::string& factor : times.factors)
      key += key.empty() ? factor : " " + factor + " *";
    terms_[key] += number * times.number;
  }
  // Of two sums the larger one, term by term; of one that is not known the other.
  void TakeLarger(const Sum& other) {
    if (is_known_ != other.is_known_) {
      if (!is_known_) *this = other;
      return;
    }
    for (const auto& [key, number] : other.terms_) {
      int64_t& mine = terms_[key];
      mine = std::max(mine, number);
    }
  }
  bool is_known() const { return is_known_; }
  bool is_zero() const { return terms_.empty(); }
  // Absent when it depends on sizes.
  std::optional<int64_t> Number() const {
    if (!is_known_ || terms_.size() > 1) return std::nullopt;
    if (terms_.empty()) return 0;
    const auto& [key, number] = *terms_.begin();
    return key.empty() ? std::optional(number) : std::nullopt;
  }
  std::string Text() const {
    std::string text;
    for (const auto& [key, number] : terms_) {
      std::string term =
          key.empty() ? std::to_string(number) : key + " " + std::to_string(number) + " *";
      text += text.empty() ? term : " " + term + " +";
    }
    return text.empty() ? "0" : text;
  }

 private:
  std::map<std::string, int64_t> terms_;
  bool is_known_ = true;
};

const char* SizeOperator(BinaryOp op) {
  switch (op) {
    case BinaryOp::kAdd: return "+";
    case BinaryOp::kSub: return "-";
    case BinaryOp::kMul: return "*";
    case BinaryOp::kDiv:
    case BinaryOp::kFloorDiv: return "/";
    case BinaryOp::kMod:
    case BinaryOp::kFloorMod: return "%";
    case BinaryOp::kMin: return "min";
    case BinaryOp::kMax: return "max";
    default: return nullptr;
  }
}

int64_t OperationsOf(BinaryOp op) {
  return op <= BinaryOp::kFloorMod || op == BinaryOp::kMin || op == BinaryOp::kMax ? 1 : 0;
}

int64_t OperationsOf(ir::Intrin intrin, int lanes) {
  switch (intrin) {
    case ir::Intrin::kNot:
    case ir::Intrin::kIfThenElse:
    case ir::Intrin::kLikely:
    case ir::Intrin::kReinterpret:
    case ir::Intrin::kIsNan:
    case ir::Intrin::kIsInf:
    case ir::Intrin::kIsFinite: return 0;
    case ir::Intrin::kFma: return 2 * lanes;
    default: return lanes;
  }
}

class Counter : public tir::StmtVisitor {
 public:
  explicit Counter(const tir::PrimFunc& program) {
    int num_scalars = 0;
    for (const ir::Var& param : program->params) {
      if (!tir::IsBuffer(param)) {
        sizes_[param.get()] = "s" + std::to_string(num_scalars++);
        continue;
      }
      std::string tensor = std::to_string(buffers_.size());
      tir::Buffer buffer(param);
      place_[param.get()] = buffers_.size();
      buffers_.push_back({buffer, {}, {}});
      int dim = 0;
      for (const Expr& size : buffer.shape()) {
        if (size.as<ir::VarObj>())
          sizes_.emplace(size.get(), "t" + tensor + "." + std::to_string(dim));
        ++dim;
      }
    }
    int64_t num_outputs = ir::GetAttr<int64_t>(program->attrs, tir::attr::kNumOutputs, 1);
    first_output_ =
        buffers_.size() - std::min<size_t>(buffers_.size(), static_cast<size_t>(num_outputs));
    Visit(program->body);
  }

  std::string Text() const {
    std::string text = operations_.is_known() ? operations_.Text() : "";
    text += "|";
    std::string bytes;
    for (size_t i = 0; i < buffers_.size(); ++i) {
      // What a program accumulates in a result it has written before.
      if (i < first_output_) AddBytes(buffers_[i].loads, i, &bytes);
      AddBytes(buffers_[i].stores, i, &bytes);
    }
    text += bytes.empty() ? "0" : bytes;
    return multiplies_bytes_ ? text + "|int8" : multiplies_bf16_ ? text + "|bfloat16" : text;
  }

  std::optional<int64_t> NumSteps() const {
    std::optional<int64_t> steps = operations_.Number();
    for (const Traffic& traffic : buffers_) {
      std::optional<int64_t> stores = traffic.stores.Number();
      if (!steps || !stores) return std::nullopt;
      *steps += *stores;
    }
    return steps;
  }

  void VisitFor(const tir::ForObj* loop) override {
    Times outer = times_;
    if (auto number = ir::AsInt(loop->extent)) {
      times_.number *= *number;
    } else if (auto size = SizeText(loop->extent)) {
      times_.factors.push_back(*size);
    } else {
      times_.is_known = false;
    }
    auto told = loop->annotations.find(kOperations);
    std::optional<std::string> operations;
    if (told != loop->annotations.end()) operations = SizeText((*told).second.cast<Expr>());
    if (operations && !is_told_) {
      Times all = outer;
      all.factors.push_back(*operations);
      operations_.Add(1, all);
    }
    const bool was_told = std::exchange(is_told_, is_told_ || operations.has_value());
    Visit(loop->body);
    is_told_ = was_told;
    times_ = outer;
  }

  // One of both runs.
  void VisitIfThenElse(const tir::IfThenElseObj* s) override {
    Visit(s->condition);
    const Sum operations = operations_;
    const std::vector<Traffic> buffers = buffers_;
    Visit(s->then_case);
    Sum other = std::exchange(operations_, operations);
    std::vector<Traffic> others = std::exchange(buffers_, buffers);
    if (s->else_case.defined()) Visit(s->else_case);
    operations_.TakeLarger(other);
    for (size_t i = 0; i < buffers_.size(); ++i) {
      buffers_[i].loads.TakeLarger(others[i].loads);
      buffers_[i].stores.TakeLarger(others[i].stores);
    }
  }

  void VisitBind(const tir::BindObj* s) override {
    if (auto size = SizeText(s->value))
      sizes_[s->var.get()] = *size;
    else
      tir::StmtVisitor::VisitBind(s);
  }

  void VisitWhile(const tir::WhileObj* loop) override {
    bool was_known = std::exchange(times_.is_known, false);
    tir::StmtVisitor::VisitWhile(loop);
    times_.is_known = was_known;
  }

  // An initial value is no work; regions and axes are notes.
  void VisitSBlock(const tir::SBlockObj* block) override { Visit(block->body); }
  void VisitSBlockRealize(const tir::SBlockRealizeObj* s) override { Visit(s->block); }

  void VisitBufferStore(const tir::BufferStoreObj* store) override {
    Touch(store->buffer, store->value.dtype().lanes, /*is_store=*/true);
    Visit(store->value);
  }
  // Indices are no work.
  void VisitBufferLoad(const tir::BufferLoadObj* load) override {
    DLDataType dtype = ffi::GetRef<Expr>(load).dtype();
    Touch(load->buffer, dtype.lanes, /*is_store=*/false);
    for (const Expr& index : load->indices) VisitIndex(index);
  }
  void VisitBinary(const ir::BinaryObj* b) override {
    if (!in_index_ && !is_told_) operations_.Add(OperationsOf(b->op) * b->a.dtype().lanes, times_);
    if (b->op == BinaryOp::kAdd) {
      NoteProduct(b->a);
      NoteProduct(b->b);
    }
    // What asks for a place (padding) is no work either.
    const bool was_index = in_index_;
    in_index_ = in_index_ || (IsBool(ffi::GetRef<Expr>(b).dtype()) && IsInt(b->a.dtype()));
    tir::StmtVisitor::VisitBinary(b);
    in_index_ = was_index;
  }
  void VisitIntrin(const ir::IntrinObj* i) override {
    int lanes = i->args.empty() ? 1 : i->args[0].dtype().lanes;
    if (!in_index_ && !is_told_) operations_.Add(OperationsOf(i->intrin, lanes), times_);
    tir::StmtVisitor::VisitIntrin(i);
  }
  void VisitDef(const ir::Var&) override {}
  void VisitType(const ir::Type&) override {}

 private:
  struct Traffic {
    tir::Buffer buffer;
    Sum loads, stores;
  };

  // Loads inside an index are traffic all the same: a gather's indices.
  void VisitIndex(const Expr& index) {
    bool was_index = std::exchange(in_index_, true);
    Visit(index);
    in_index_ = was_index;
  }

  // Of a term of a sum.
  void NoteProduct(const Expr& term) {
    const auto* product = term.as<ir::BinaryObj>();
    if (product == nullptr || product->op != BinaryOp::kMul) return;
    const DLDataType a = WidenedFrom(product->a), b = WidenedFrom(product->b);
    multiplies_bytes_ |= IsByte(a) && IsByte(b);
    multiplies_bf16_ |= IsBFloat(a) && IsBFloat(b);
  }
  // The dtype of what is multiplied before it was widened; a zero point may be taken off.
  static DLDataType WidenedFrom(const Expr& factor) {
    if (const auto* cast = factor.as<ir::CastObj>()) return cast->value.dtype();
    const auto* binary = factor.as<ir::BinaryObj>();
    if (binary != nullptr && binary->op == BinaryOp::kSub) return WidenedFrom(binary->a);
    return factor.dtype();
  }

  void Touch(const ir::Var& buffer, int lanes, bool is_store) {
    auto it = place_.find(buffer.get());
    if (it == place_.end()) return;
    Traffic& traffic = buffers_[it->second];
    (is_store ? traffic.stores : traffic.loads).Add(lanes, times_);
  }

  void AddBytes(const Sum& touched, size_t i, std::string* bytes) const {
    if (touched.is_zero()) return;
    std::string elems = "n" + std::to_string(i);
    if (touched.is_known()) elems += " " + touched.Text() + " min";
    DLDataType dtype = buffers_[i].buffer.elem_dtype();
    int64_t bits = int64_t{dtype.bits} * dtype.lanes;
    elems += bits % 8 == 0 ? " " + std::to_string(bits / 8) + " *"
                           : " " + std::to_string(bits) + " * 7 + 8 /";
    *bytes += bytes->empty() ? elems : " " + elems + " +";
  }

  // A size in postfix notation; nothing when it depends on more than parameters.
  std::optional<std::string> SizeText(const Expr& e) const {
    if (auto number = ir::AsInt(e)) return std::to_string(*number);
    if (auto it = sizes_.find(e.get()); it != sizes_.end()) return it->second;
    if (const auto* cast = e.as<ir::CastObj>()) return SizeText(cast->value);
    const auto* binary = e.as<ir::BinaryObj>();
    const char* op = binary != nullptr ? SizeOperator(binary->op) : nullptr;
    if (op == nullptr) return std::nullopt;
    auto a = SizeText(binary->a), b = SizeText(binary->b);
    if (!a || !b) return std::nullopt;
    return *a + " " + *b + " " + op;
  }

  std::unordered_map<const ffi::Object*, std::string> sizes_;
  std::unordered_map<const ffi::Object*, size_t> place_;  // of a parameter among buffers_
  std::vector<Traffic> buffers_;
  size_t first_output_ = 0;
  Times times_;
  Sum operations_;
  bool in_index_ = false;
  bool is_told_ = false;  // in a loop that says what it computes
  bool multiplies_bytes_ = false, multiplies_bf16_ = false;
};

}  // namespace

std::string WorkOf(const tir::PrimFunc& program) { return Counter(program).Text(); }

std::optional<int64_t> NumSteps(const tir::PrimFunc& program) {
  return Counter(program).NumSteps();
}

}  // namespace relaxvm::analysis
