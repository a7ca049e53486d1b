// SPDX-License-Identifier: Apache-2.0
// What LSTM, GRU and RNN share: a loop over time for every few rows of the batch.  The gates of a
// block of units lie side by side, so that they stay in registers from the recurrent product to the
// new state.
#pragma once

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
    int index;
    Expr batch;
    Expr time;    // where the row reads its input and writes its result
    Expr active;  // null: always
  };
  using EachRow = std::function<Stmt(const Row&)>;
  // The new state of the units in `lane` (a vector axis) of block `block`.
  using Update = std::function<Stmt(const Row&, const Expr& lane)>;

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
  Stmt Products(const Buffer& acc, const std::vector<int64_t>& gates,
                const std::function<Expr(const Row&, int64_t gate, const Expr& lane)>& start,
                const std::function<Expr(const Row&, const Expr& k)>& left);
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
  Stmt Tasks();
  Stmt OneTile(int num_rows);
  Stmt Rows(int num_rows, const Expr& first);
  ffi::Array<Stmt> Begin(int num_rows, const Expr& first);
  ffi::Array<Stmt> BeginStep(const Expr& step);
  Stmt BlockOf(size_t phase);
  Stmt Time();
  Stmt Load();
  Stmt StoreStep();
  Stmt StoreLast();
  Stmt ClearRest();
  Stmt ForBlocks(const std::function<Stmt()>& body);
  Stmt ForBlocks(const Expr& group, const std::function<Stmt()>& body);
  Expr BackAndForth(const Expr& group, const Expr& i, const Expr& extent) const;
  Expr Reversed() const;
  // Products of gates [first, second).
  Stmt ProductsOf(const Buffer& acc, std::pair<size_t, size_t> some,
                  const std::vector<int64_t>& gates,
                  const std::function<Expr(const Row&, int64_t gate, const Expr& lane)>& start,
                  const std::function<Expr(const Row&, const Expr& k)>& left);

  size_t num_states_;
  int64_t lengths_;  // position of the lengths among the inputs; -1: there are none
  Expr steps_, batch_, hidden_, blocks_;
  Expr used_;  // the steps that the rows of a tile take
  Expr now_;   // 0 or 1: which half of a state's buffer is read
  int num_rows_ = 1;
  std::vector<Row> rows_;
  std::vector<Buffer> states_;
};

}  // namespace relaxvm::ops
