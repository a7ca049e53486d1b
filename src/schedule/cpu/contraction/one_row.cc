// SPDX-License-Identifier: Apache-2.0
// One row times a matrix that lies row by row: several rows of it pass at a time, from end to end,
// so that memory is read in long runs; the sums lie in the first cache.  Threads share parts of the
// sum, whose number depends on the shapes alone, and chunks of columns, where a row of sums is
// long.
#include <algorithm>

#include "schedule/cpu/contraction/contraction.h"

namespace relaxvm::schedule::cpu {
namespace {

using tir::BufferStore;
using tir::For;
using tir::ForKind;
using tir::SeqStmt;

// Below it the sums of a row of B fit into registers.
constexpr int64_t kFewestVectors = 24;
// Rows of B that pass together, from the second cache and from behind it.
constexpr int64_t kRowsFromCache = 4;
constexpr int64_t kRowsFromMemory = 8;
// Tasks that a sum is cut into, and rows of B that a part of it has at least.
constexpr int64_t kTasks = 4;
constexpr int64_t kFewestRowsOfPart = 64;
// Memory is read fastest by several long runs; vectors of a whole cache line leave the core time to
// fetch the next ones.
constexpr int64_t kBytesOfLine = 64;

class OneRowEmitter {
 public:
  OneRowEmitter(const Contraction& c, const Machine& machine, arith::Analyzer* analyzer)
      : c_(c),
        machine_(machine),
        analyzer_(analyzer),
        bytes_(std::max<int64_t>(SizeInBytes(c.acc), 1)),
        lanes_(machine.Lanes(bytes_)) {}

  std::optional<Stmt> Run() {
    if (!HasForm()) return std::nullopt;
    ChooseSizes();
    const std::vector<Axis> outer = c_.OuterOfB();
    const Expr points = NumPoints(outer);
    sums_ = Buffer(
        "sums",
        {num_parts_ > 1 ? Expr(points * Expr(num_parts_ * num_chunks_ * size_)) : Expr(size_)},
        c_.acc);
    Var chunk("chunk", Int(64)), part("part", Int(64));
    const Expr from = analyzer_->Simplify(num_chunks_ > 1 ? Expr(chunk * Expr(size_)) : Expr(0));
    std::vector<Axis> tasks = outer;
    tasks.push_back({part, Expr(num_parts_)});
    tasks.push_back({chunk, Expr(num_chunks_)});
    const Expr depth = c_.stage.reduce[0].extent;
    const Expr work = ir::FloorDiv(depth * Expr(size_ / lanes_), num_parts_);
    if (num_parts_ == 1) {
      const Stmt all =
          SeqStmt::Flatten({tir::AllocBuffer(sums_), Sum(from, Expr(0), Expr(0), depth),
                            Finish(from, [&](const Expr& at) { return sums_.Load({at}); })});
      return OverTasks(tasks, all, work, analyzer_);
    }
    // Whole blocks of rows for each part.
    const Expr share = analyzer_->Simplify(ir::CeilDiv(depth, num_parts_ * rows_) * Expr(rows_));
    const Expr base = analyzer_->Simplify(
        (LinearIndex(outer) * Expr(num_chunks_) + (num_chunks_ > 1 ? Expr(chunk) : Expr(0))) *
        Expr(num_parts_ * size_));
    const Expr first = ir::Min(part * share, depth);
    const Stmt sum = Sum(from, base + part * Expr(size_), first, ir::Min(share, depth - first));
    const Stmt finish = Finish(from, [&](const Expr& at) {
      Expr value = sums_.Load({base + at});
      for (int64_t p = 1; p < num_parts_; ++p)
        value = value + sums_.Load({base + Expr(p * size_) + at});
      return value;
    });
    std::vector<Axis> chunks = outer;
    chunks.push_back({chunk, Expr(num_chunks_)});
    return SeqStmt::Flatten(
        {tir::AllocBuffer(sums_), OverTasks(tasks, sum, work, analyzer_), Loops(chunks, finish)});
  }

 private:
  bool HasForm() const {
    if (!ir::IsIntValue(c_.row.extent, 1) || c_.panel_width > 0 || c_.group > 1 ||
        c_.side_by_side.has_value() || c_.guard.defined() || c_.stage.reduce.size() != 1 ||
        lanes_ < 2)
      return false;
    for (const Axis& axis : c_.outer_a) {
      if (!ir::IsIntValue(axis.extent, 1)) return false;
    }
    if (ir::AsInt(c_.vector.extent).value_or(0) < kFewestVectors * lanes_) return false;
    if (ir::AsInt(c_.stage.reduce[0].extent).value_or(kRowsFromMemory) < kRowsFromMemory)
      return false;
    auto b = LinearOffset::Of(c_.LoadOf(c_.b)->indices[0], c_.AllAxes());
    return ir::IsIntValue(b->Coeff(c_.vector.var), 1);
  }

  void ChooseSizes() {
    columns_ = ir::AsInt(c_.vector.extent).value();
    const int64_t most = std::max(machine_.l1_bytes / 2 / bytes_ / lanes_, int64_t{1});
    const int64_t vectors = (columns_ + lanes_ - 1) / lanes_;
    num_chunks_ = (vectors + most - 1) / most;
    size_ = (vectors + num_chunks_ - 1) / num_chunks_ * lanes_;
    const auto depth = ir::AsInt(c_.stage.reduce[0].extent);
    bool is_one = true;
    for (const Axis& axis : c_.OuterOfB()) is_one = is_one && ir::IsIntValue(axis.extent, 1);
    const int64_t parts = (kTasks + num_chunks_ - 1) / num_chunks_;
    const bool is_deep = depth.value_or(parts * kFewestRowsOfPart) >= parts * kFewestRowsOfPart;
    num_parts_ = is_one && is_deep ? parts : 1;
    const int64_t of_b = SizeInBytes(Buffer(c_.LoadOf(c_.b)->buffer).elem_dtype());
    const int64_t bytes_of_b = columns_ * depth.value_or(columns_) * of_b;
    rows_ = bytes_of_b > machine_.l2_bytes ? kRowsFromMemory : kRowsFromCache;
    fetches_ = bytes_of_b > std::max(machine_.l2_bytes, machine_.l3_bytes / 2) &&
               lanes_ * bytes_ >= kBytesOfLine;
  }

  // `body` for each vector of a task's columns from `from` on; the second argument: how many lanes
  // are inside, null for all.
  using Body = std::function<Stmt(const Expr& at, const Expr& limit)>;
  Stmt Each(const Expr& from, const Body& body,
            const std::function<Expr(const Var&)>& fetched = nullptr) const {
    Var vector("vector", Int(64));
    const Expr count = analyzer_->Simplify(ir::Min(Expr(size_), Expr(columns_) - from));
    const Expr vectors = analyzer_->Simplify(ir::FloorDiv(count, lanes_));
    Stmt all = For(vector, 0, vectors, ForKind::kSerial, body(vector * Expr(lanes_), Expr()));
    if (fetched != nullptr) all = Annotated(all.as<tir::ForObj>(), kPrefetch, fetched(vector));
    const int64_t rest = columns_ % lanes_;
    if (rest == 0) return all;
    const Expr last = analyzer_->Simplify(vectors * Expr(lanes_));
    return SeqStmt::Flatten({all, tir::IfThenElse(ir::Less(last, count), body(last, Expr(rest)))});
  }

  Stmt Lanes(const Var& lane, const Stmt& body) const {
    return For(lane, 0, lanes_, ForKind::kVectorized, body);
  }

  // Rows [first, first + count) of B, their columns from `from` on, into the sums from `base` on.
  Stmt Sum(const Expr& from, const Expr& base, const Expr& first, const Expr& count) const {
    const Stmt clear = Each(from, [&](const Expr& at, const Expr&) {
      Var lane("lane", Int(64));
      return Lanes(lane, BufferStore(sums_, ir::Const(c_.acc, 0), {base + at + lane}));
    });
    Var block("block", Int(64)), rest("rest", Int(64)), num_rows("num_rows", Int(64));
    const Expr blocks = analyzer_->Simplify(ir::FloorDiv(num_rows, rows_));
    const Expr done = analyzer_->Simplify(blocks * Expr(rows_));
    return SeqStmt::Flatten(
        {clear, tir::Bind(num_rows, analyzer_->Simplify(count)),
         Loop(block, blocks, ForKind::kSerial,
              Pass(from, base, first + block * Expr(rows_), rows_)),
         Loop(rest, num_rows - done, ForKind::kSerial, Pass(from, base, first + done + rest, 1))});
  }

  // `count` rows of B from `first` on.
  Stmt Pass(const Expr& from, const Expr& base, const Expr& first, int64_t count) const {
    ffi::Array<Stmt> seq;
    std::vector<Var> left;
    for (int64_t row = 0; row < count; ++row) {
      left.emplace_back("left", c_.acc);
      seq.push_back(tir::Bind(left.back(), ir::Cast(c_.acc, At(c_.a, first + Expr(row)))));
    }
    const Body add = [&](const Expr& at, const Expr& limit) {
      Var lane("lane", Int(64));
      Expr sum = sums_.Load({base + at + lane});
      for (int64_t row = 0; row < count; ++row) {
        ffi::Map<Var, Expr> map;
        map.Set(c_.vector.var, from + at + lane);
        Expr right = tir::Substitute(At(c_.b, first + Expr(row)), map);
        if (limit.defined()) right = PredicateLoads(right, lane, ir::Less(lane, limit));
        right = ir::Cast(c_.acc, right);
        const Expr& factor = left[static_cast<size_t>(row)];
        sum = IsFloat(c_.acc) ? Expr(ir::CallIntrin(ir::Intrin::kFma, {factor, right, sum}))
                              : ir::Add(sum, ir::Mul(factor, right));
      }
      return Lanes(lane, BufferStore(sums_, sum, {base + at + lane}));
    };
    // The rows of the next pass are fetched meanwhile.
    auto b = LinearOffset::Of(c_.LoadOf(c_.b)->indices[0], c_.AllAxes());
    const auto step = ir::AsInt(b->Coeff(c_.stage.reduce[0].var));
    std::function<Expr(const Var&)> fetched;
    if (fetches_ && count > 1 && step.has_value()) {
      fetched = [&](const Var& vector) {
        ffi::Map<Var, Expr> map;
        map.Set(c_.vector.var, from + vector * Expr(lanes_));
        const auto* load = c_.LoadOf(c_.b);
        const Expr next = tir::Substitute(At(load->indices[0], first + Expr(count)), map);
        return Buffer(load->buffer).Load({ir::RampExpr(next, step.value(), count)});
      };
    }
    seq.push_back(Each(from, add, fetched));
    return SeqStmt::Flatten(seq);
  }

  // The operand at one place of the sum.
  Expr At(const Expr& operand, const Expr& k) const {
    ffi::Map<Var, Expr> map;
    map.Set(c_.stage.reduce[0].var, k);
    map.Set(c_.row.var, Expr(0));
    for (const Axis& axis : c_.outer_a) map.Set(axis.var, Expr(0));
    return tir::Substitute(operand, map);
  }

  // Writes C's columns from `from` on, of which `sum_at` gives the sums.
  Stmt Finish(const Expr& from, const std::function<Expr(const Expr& at)>& sum_at) const {
    return Each(from, [&](const Expr& at, const Expr& limit) {
      Var lane("lane", Int(64));
      ffi::Map<Var, Expr> map;
      map.Set(c_.row.var, Expr(0));
      for (const Axis& axis : c_.outer_a) map.Set(axis.var, Expr(0));
      map.Set(c_.vector.var, from + at + lane);
      Expr value = sum_at(at + lane);
      if (c_.stage.finish.defined()) {
        map.Set(c_.stage.reduced, value);
        value = tir::Substitute(c_.stage.finish, map);
      }
      value = ir::Cast(c_.stage.out->elem_dtype(), value);
      const Expr inside = limit.defined() ? Expr(ir::Less(lane, limit)) : Expr();
      if (inside.defined()) value = PredicateLoads(value, lane, inside);
      return Lanes(lane, BufferStore(*c_.stage.out, value,
                                     {tir::Substitute(c_.stage.indices[0], map)}, inside));
    });
  }

  const Contraction& c_;
  const Machine& machine_;
  arith::Analyzer* analyzer_;
  int64_t bytes_, lanes_;
  int64_t columns_ = 0, size_ = 0;  // of all, of a task
  int64_t num_chunks_ = 1, num_parts_ = 1;
  int64_t rows_ = 0;      // of B that pass together
  bool fetches_ = false;  // the rows of the next pass
  Buffer sums_{"sums", {}, Float(32)};
};

}  // namespace

std::optional<Stmt> EmitOneRow(const Contraction& c, const Machine& machine,
                               arith::Analyzer* analyzer) {
  return OneRowEmitter(c, machine, analyzer).Run();
}

}  // namespace relaxvm::schedule::cpu
