// SPDX-License-Identifier: Apache-2.0
// What LSTM, GRU and RNN share: a loop over time for every few rows of the batch.  The gates of a
// block of units lie side by side, so that they stay in registers from the recurrent product to the
// new state.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "ops/loops.h"

namespace relaxvm::ops {

struct RecurrentAttrs {
  std::string activations;  // empty: the usual ones of the cell
  std::vector<double> alpha = {};
  std::vector<double> beta = {};
  double clip = 0;
  std::string direction = "forward";
  bool input_forget = false;
  bool linear_before_reset = false;
};
inline auto UsualActivations(const char* usual) {
  return [usual](RecurrentAttrs& a) {
    if (a.activations.empty()) a.activations = usual;
  };
}

// x: [time, batch, directions, blocks, gates, width]; r: [directions, blocks, hidden, gates,
// width]; states: [directions, batch, hidden].  hidden <= blocks * width; the units past hidden are
// padding.
struct RecurrentTypes {
  TensorType x, r, state;
  bool AreKnown() const {  // else: only ranks and dtypes were checked
    return x->GetShape().has_value() && r->GetShape().has_value() && state->GetShape().has_value();
  }
};
// Checks arguments 0 (x), 1 (r) and the states from 2 on; `lengths`: the position of the optional
// lengths.
RecurrentTypes CheckRecurrent(const TypeCtx& ctx, const RecurrentAttrs& a, int64_t gates,
                              size_t num_states, size_t lengths);
Type RecurrentResult(TypeCtx& ctx, const RecurrentTypes& types, size_t num_states);

// Checks the names of activations, the number of them, and the direction.
void CheckActivations(const TypeCtx& ctx, const RecurrentAttrs& a, int64_t count);

// The activation at `index` of the list, of `x`.
Expr Activate(const RecurrentAttrs& a, size_t index, Expr x);

// The loop, seen by a cell's formulas.
class Recurrence {
 public:
  // One row of the batch in one step.
  struct Row {
    Expr index;  // among the sums of its tile
    Expr place;  // among the states
    Expr batch;
    Expr time;    // where the row reads its input and writes its result
    Expr active;  // null: always
  };
  using EachRow = std::function<Stmt(const Row&)>;
  // The value of a gate's sum before the product.
  using Start = std::function<Expr(const Row&, int64_t gate, const Expr& lane)>;
  using Left = std::function<Expr(const Row&, const Expr& k)>;

  Recurrence(const RecurrentAttrs& a, const std::vector<Buffer>& inputs,
             const std::vector<Buffer>& outputs, size_t num_states, int64_t lengths);
  virtual ~Recurrence() = default;
  Stmt Run();

 protected:
  // A step's phases, one after the other, each for one block of units (block_): reads the states by
  // Old and, in the last phase, writes those for the next step by SetNew.
  virtual size_t NumPhases() const { return 1; }
  virtual Stmt Phase(size_t phase) = 0;
  // Memory that lives as long as the rows; one phase may write what the next one reads.
  virtual std::vector<Buffer> Scratch() { return {}; }

  Stmt ForRows(const EachRow& body) const;
  Stmt ForLanes(const std::function<Stmt(const Expr& lane)>& body) const;
  // acc[row, i] = start(row, gate i) + sum over k of left(row, k) r[k, gate i]
  Stmt Products(const Buffer& acc, const std::vector<int64_t>& gates, const Start& start,
                const Left& left);
  Expr Input(const Row& row, int64_t gate, const Expr& lane) const;
  Expr Unit(const Expr& lane) const { return block_ * Expr(width_) + lane; }
  Expr Clipped(const Expr& x) const;
  Expr Old(size_t state, const Row& row, const Expr& unit) const;
  Stmt SetNew(size_t state, const Row& row, const Expr& unit, const Expr& value) const;
  Buffer Tile(const char* name, size_t num_gates) const;
  Buffer RowBuffer(const char* name) const;
  Expr Wide(Expr e) const { return ir::Cast(wide_, std::move(e)); }

  const RecurrentAttrs& attrs_;
  const std::vector<Buffer>& inputs_;
  const std::vector<Buffer>& outputs_;
  DLDataType wide_;
  int64_t gates_;
  int64_t width_;
  Expr direction_;
  Expr block_;

 private:
  // Gates and lanes whose sums are in registers at once: some of a block's.
  struct Columns {
    int64_t begin, end;
  };
  Stmt Forms();
  Stmt FormsOf(int64_t tile_rows);
  Expr StepWork() const;
  Expr TilesOf(const Expr& rows) const;
  Stmt Tasks(int64_t most_rows, const Expr& rows);
  Stmt InSteps(int64_t tile_rows);
  Stmt TakeTile(const Expr& tile, int64_t most_rows, const Expr& rows, bool is_most);
  Row RowAt(const Expr& index, const std::string& name, ffi::Array<Stmt>* bounds) const;
  Expr Longest() const;
  ffi::Array<Stmt> Alloc(const Expr& num_places);
  ffi::Array<Stmt> BeginStep(const Expr& step);
  Stmt BlockOf(size_t phase);
  Stmt PhaseOf(const Expr& group);
  Stmt Time();
  Stmt Load(const Expr& first, const Expr& num_rows);
  Stmt StoreStep();
  Stmt KeepStep();
  Stmt StoreLast(const Expr& first, const Expr& num_rows);
  Stmt ClearRest();
  Stmt ForBlocks(const std::function<Stmt()>& body);
  Stmt ForBlocks(const Expr& group, const std::function<Stmt()>& body);
  Expr BackAndForth(const Expr& group, const Expr& i, const Expr& extent) const;
  Expr Reversed() const;
  Stmt ProductsOf(const Buffer& acc, Columns columns, const std::vector<int64_t>& gates,
                  const Start& start, const Left& left);

  size_t num_states_;
  int64_t lengths_;  // position of the lengths among the inputs; -1: there are none
  int64_t chunk_;    // lanes of a column
  Expr steps_, directions_, batch_, hidden_, blocks_;
  bool is_single_ = false;  // the batch is one row
  int64_t most_rows_ = 1;   // of a tile
  int64_t most_sums_ = 1;   // numbers that the sums of a tile may take in registers at once
  Expr used_;               // the steps that the rows of a tile take
  Expr now_;                // 0 or 1: which half of a state's buffer is read
  Expr step_;
  // The rows of the tile.
  int64_t tile_rows_ = 1;     // at most
  std::set<int64_t> counts_;  // how many there may be
  Expr num_rows_;
  Expr first_row_;    // of the batch
  Expr first_place_;  // among the states
  Expr num_places_;
  std::vector<Row> rows_;  // those of a product
  std::vector<Buffer> states_;
};

}  // namespace relaxvm::ops
