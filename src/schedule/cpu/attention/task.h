// SPDX-License-Identifier: Apache-2.0
// What tasks of attention have in common, whichever way their scores lie.
//
// A task is a chunk of rows: queries of one head, or of all heads that share keys and values, those
// of one query side by side.  Keys pass by in blocks:
//   s[r, :]  = q[r, :] k^T                   then masked
//   m'       = max(m[r], max(s[r, :])),   p = exp(s[r, :] - m'),   c = exp(m[r] - m')
//   l[r]     = c l[r] + sum(p),   o[r, :] = c o[r, :] + p v        register tiles
// and at the end o[r, :] / l[r] is finished and stored.  Sums are kept in float32.
// Blocks of keys that the mask hides from every query of the chunk are left out.
#pragma once

#include <functional>
#include <optional>
#include <unordered_map>

#include "schedule/cpu/attention/parts.h"

namespace relaxvm::schedule::cpu {

inline constexpr int64_t kAttentionChunk = 96;  // rows of a task, at most
inline constexpr int64_t kTileRows = 6;         // of a register tile
// Rows that are too few to lie along the lanes.
inline constexpr int64_t kFewForLanes = 6;
inline constexpr double kLowestScore = -3.4028234663852886e38;  // float32: what starts a maximum

// Replaces loads of buffers by values.
class BufferReader : public tir::StmtMutator {
 public:
  std::unordered_map<const ffi::Object*, Expr> values;
  Expr MutateBufferLoad(const tir::BufferLoad& load) override {
    auto it = values.find(load->buffer.get());
    return it == values.end() ? tir::StmtMutator::MutateBufferLoad(load) : it->second;
  }
};

class AttentionTask {
 public:
  AttentionTask(const AttentionParts& parts, const Machine& traits, arith::Analyzer* analyzer)
      : of_(parts), traits_(traits), analyzer_(analyzer) {}

  // Is there a form for these sizes?  Comes before all that follows.
  bool Fits();
  // All rows of the scores of one head, or of those that share keys.
  Expr NumRows() const { return of_.scores->spatial[of_.query].extent * Expr(of_.shared); }
  // The axes over tasks, the chunks of one head last.
  std::vector<Axis> Tasks() const;
  Expr WorkOfTask() const { return keys_ * Expr(kAttentionChunk * (depth_ + width_) / lanes_ * 4); }

 protected:
  using Map = ffi::Map<Var, Expr>;

  // Chunks are alike, as far as a multiple of `step` rows allows.
  ffi::Array<Stmt> Cut(const Axis& chunk, int64_t step);
  // The axes of the scores, but for the keys, at row `row` of all rows of the task's group.
  Map AtRow(const Expr& row) const;
  Expr RowPlace(size_t axis, const Expr& row) const;
  // The first head of the task's group stands for all of them.
  Expr GroupPlace(size_t axis) const;
  // The row that row `r` of the chunk is; rows behind the last are the last.
  Expr Inside(const Expr& row) const { return ir::Min(first_ + row, first_ + count_ - Expr(1)); }
  Expr NumBlocks(int64_t keys_of_block) const;
  // Are elements of the queries or keys less than float32?
  static bool IsNarrow(const Expr& operand) {
    return Buffer(LoadInCasts(operand)->buffer).elem_dtype().bits < 32;
  }

  Buffer Scratch(const char* name, int64_t elems, const char* scope, ffi::Array<Stmt>* seq) const {
    Buffer buffer(name, {Expr(elems)}, Float(32), scope);
    seq->push_back(tir::AllocBuffer(buffer));
    return buffer;
  }
  static Expr Zero() { return ir::ConstFloat(Float(32), 0); }

  // Does `body(first row, rows)` for tiles of `rows` rows that cover the chunk; what is computed
  // for rows behind the last one is never stored.  Few queries go one by one.
  Stmt TileRows(int64_t rows, bool one_by_one,
                const std::function<Stmt(const Expr&, int64_t)>& body) const;

  struct TileShape {
    Expr first;
    int64_t rows, vectors, width;
    Var k;
    Expr depth;
  };
  struct TileParts {
    std::function<Expr(const Expr& row)> left;
    std::function<Expr(int64_t v, const Var& lane)> right;
    std::function<Expr(const Expr& row, int64_t v, const Var& lane)> start;  // null: 0
    // What a sum becomes; null: it stays.
    std::function<Expr(const Expr& row, int64_t v, const Var& lane, const Expr& sum)> finish;
    std::function<Stmt(const Expr& row, int64_t v, const Var& lane, const Expr& sum)> store;
    // From all sums, row by row; null: nothing.
    std::function<Stmt(const Buffer& acc)> after;
  };
  // sum over k of left(row) * right(v), from start.
  Stmt MultiplyTile(const TileShape& t, const TileParts& parts) const;

  // sums = factor * sums + p v, where score(row, key) is p
  Stmt Weigh(const std::function<Expr(const Expr& row, const Expr& key)>& score,
             bool one_by_one) const;
  // Stores o / total(row).
  Stmt Finish(const std::function<Expr(const Expr& row)>& total) const;
  // The formula with every access flat; loads of the scores are replaced anyway.
  Expr FlatValue(const Expr& value) const;
  // Element `d` of key `j` of the block, as float32.
  Expr KeyAt(const Expr& j, const Expr& d) const;
  // to[r, d] = q[r, d]
  Stmt WidenQueries(const Buffer& to) const;
  // to[j, d] = k[key_start_ + j, d]
  Stmt WidenKeys(const Buffer& to) const;
  // Emits a stage whose output's last axis is not that of what it reads; `to` is the flat output.
  Stmt Turn(const Stage& turn, const Buffer& to) const;

  AttentionParts of_;
  const Machine& traits_;
  arith::Analyzer* analyzer_;
  int64_t depth_ = 0, width_ = 0, padded_width_ = 0, lanes_ = 1;
  Expr keys_;
  // of the task
  Buffer sums_{Buffer("sums", {Expr(1)}, Float(32))}, factor_ = sums_;
  Expr chunk_rows_, first_, key_start_, here_;
  Var count_{Var("rows", Int(64))};

 private:
  Expr LastSeen() const;
  Stmt WidenRows(const char* name, const Expr& rows, const Buffer& to,
                 const std::function<Expr(const Var& row, const Var& d)>& value) const;
};

// One task: the body under the loops over Tasks().  `only_few`: there are kFewForLanes rows at
// most.
Stmt AttentionByRows(const AttentionParts& parts, const Axis& chunk, bool only_few,
                     const Machine& traits, arith::Analyzer* analyzer);
// The same with queries along the lanes; absent where what the mask reads cannot be turned.
std::optional<Stmt> AttentionByLanes(const AttentionParts& parts, const Axis& chunk,
                                     const Machine& traits, arith::Analyzer* analyzer);

}  // namespace relaxvm::schedule::cpu
