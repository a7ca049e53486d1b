// SPDX-License-Identifier: Apache-2.0
// Schedules for CPUs: from a tensor program to the same program with vectors, register tiles and
// threads.
#pragma once

#include <functional>

#include "schedule/access.h"
#include "schedule/stage.h"
#include "target/machine.h"

namespace relaxvm::schedule::cpu {

using target::Machine;

// Additions that are worth a thread of their own.
inline constexpr int64_t kWorkPerThread = 8192;
inline constexpr int64_t kLineBytes = 64;  // of a cache
// Annotation of a parallel loop: an integer; how many threads it is worth.
inline constexpr const char* kMostThreads = "most_threads";
// Annotation of a parallel loop: a bool expression; where it holds, results are written past the
// caches.  Stores of whole vectors must then start at multiples of the vector.
inline constexpr const char* kStreamIf = "stream_if";
// Annotation of a serial loop that stores results and does little else: code that is long keeps its
// stores there, to have nothing else twice for kStreamIf.
inline constexpr const char* kStores = "stores";
// Annotation of a serial loop: a load of one element or a ramp of them, whose cache lines are
// fetched into the second cache in each iteration; its index may lie outside of the buffer.
inline constexpr const char* kPrefetch = "prefetch";
// The same, into the first cache.
inline constexpr const char* kPrefetchNear = "prefetch_near";

PrimFunc Schedule(const PrimFunc& func, const Machine& traits);

// A program that reads one of its parameters, the weight of a contraction, in panels
// (target/packed.h), or as it was with wider elements.
struct PackedOperand {
  PrimFunc program;        // as before, but for that parameter
  PrimFunc pack;           // (weight) -> (panels)
  ffi::Array<Expr> shape;  // of the panels
  DLDataType dtype;
  bool is_plain = false;  // no panels
};
// Absent when the parameter is no such weight, or is read well as it is.
std::optional<PackedOperand> PackOperand(const PrimFunc& func, size_t param,
                                         const Machine& machine);

// ---- parts ----

// The stage for fixed values of everything but its axes: vectors along the best axis, accumulators
// in registers.
Stmt EmitNest(const Stage& flat, const Machine& traits, arith::Analyzer* analyzer);

// Does EmitNest put the one axis that the stage walks along the lanes?
bool RunsAlong(const Stage& flat, const Machine& traits, arith::Analyzer* analyzer);

// Of a stage that ran beside others (Stage::Beside), what was left out.
Stmt EmitRest(const Stage& flat, const Machine& traits, arith::Analyzer* analyzer);

// Sums of squared distances to a mean join the sums that the mean is made of, which stand before
// them in the loops of a row.
void JoinSpreads(std::vector<Stage>* loops, const Machine& traits, arith::Analyzer* analyzer);

// An elementwise stage whose one axis is shorter than a vector.
Stmt EmitPartial(const Stage& flat, const Machine& traits, arith::Analyzer* analyzer);

// A reduction over windows along the last two axes but one whose last axis is cut in groups, one
// after the other over all rows, so that the second cache holds what the windows of a row read;
// nothing where it does so anyway.
std::optional<Stage> CutWindows(const Stage& stage, const Machine& machine,
                                arith::Analyzer* analyzer);

// A reduction with spatial axis `vector` along the lanes.
Stmt EmitWindow(const Stage& flat, size_t vector, int64_t lanes, const Machine& traits,
                arith::Analyzer* analyzer);

// The same of bytes, where the sum goes over a window with weights for each channel.  `other` makes
// what runs where sizes do not fit the form.  Absent when the stage has another form.
std::optional<Stmt> EmitByteWindow(const Stage& flat, size_t vector, const Machine& machine,
                                   arith::Analyzer* analyzer, const std::function<Stmt()>& other);

// A contraction (with what finishes it) on register tiles; parallel by itself.
// Absent when its form is not one the tiles handle.
std::optional<Stmt> EmitContraction(const Stage& contraction, const Machine& traits,
                                    arith::Analyzer* analyzer);

// Code for one point of `rows`.
struct RowForm {
  std::vector<Axis> rows;
  Stmt body;
  Expr work;            // additions that the body costs
  Expr stream_if;       // results are worth writing past the caches; null: never
  bool streams = true;  // where they are, it fills whole lines
};
// Turns a square round: `rows` are expressions for as many registers as each has lanes, of elements
// of `bytes` bytes; null: it does not matter what it holds.  What `seq` takes up makes the rows of
// the result.
void TurnInRegisters(std::vector<Expr>* rows, int64_t bytes, ffi::Array<Stmt>* seq);
// An elementwise stage that reads along one axis and writes along another, by square tiles.
// Absent when it has another form.  `past_caches`: are results written past the caches?  Absent too
// where that is known at run time alone and both ways have nothing in common.
std::optional<RowForm> EmitTranspose(const Stage& flat, const Expr& past_caches,
                                     const Machine& traits, arith::Analyzer* analyzer);
// An elementwise stage that puts a few runs of memory side by side element by element, or takes
// them apart.  Absent when it has another form.
std::optional<RowForm> EmitInterleave(const Stage& flat, const Machine& machine,
                                      arith::Analyzer* analyzer);

// An elementwise stage that makes pixels of a few bytes from planes, with padding around.  Absent
// when it has another form.
std::optional<RowForm> EmitPixels(const Stage& flat, const Machine& machine,
                                  arith::Analyzer* analyzer);

// The stages [at, at + num_stages) when they are attention: softmax(q k^T) v.
struct AttentionForm {
  RowForm form;
  size_t num_stages;
};
std::optional<AttentionForm> EmitAttention(const Program& program, size_t at, const Machine& traits,
                                           arith::Analyzer* analyzer);

// Exponentials of x - m, where m is the greatest of the x, are taken as those of negative numbers.
Program KnowExponents(Program program);

// A stage cut where its formula chooses by the position on one axis; the stage itself when it does
// not, or too often.
struct Pieces {
  ffi::Array<Stmt> definitions;  // of variables that the stages use
  std::vector<Stage> stages;
};
Pieces PiecesOf(const Stage& stage, arith::Analyzer* analyzer);

// Stages that differ in what they read, and in sizes and places, as one: code for each of a hundred
// parts would take a minute to compile.
struct Family {
  Stage stage;               // any of them
  Axis member;               // which one; its extent is how many there are
  ffi::Array<Stmt> tables;   // what differs; stands before all of them
  ffi::Array<Stmt> pick;     // looks up what differs for `member`
  bool of_one_size = false;  // they have the same extents
};
// Flat elementwise stages in families, of one where nothing is like them.  `is_input`: nothing of
// the program writes to the buffer.
std::vector<Family> FamiliesOf(const std::vector<Stage>& stages,
                               const std::function<bool(const Var&)>& is_input,
                               arith::Analyzer* analyzer);

// A reduction in parts: `each` for every `part`, which fills `partial`, then `rest`.
struct Parts {
  ffi::Array<Stmt> definitions;  // of variables that the others use
  Axis part{Var("part", Int(64)), Expr(1)};
  Buffer partial{"partial", {}, Float(32)};
  Stage each, rest;
};
// Absent when there are many results, or little to reduce.
std::optional<Parts> InParts(const Stage& flat, const Machine& machine, arith::Analyzer* analyzer);

// The condition (a constant when it is known) under which a contraction runs better as one dot
// product after the other: few rows, and a right side that lies along the sum.  Null: never.
Expr BetterAsDots(const Stage& contraction, const Machine& machine, arith::Analyzer* analyzer);

// Bytes of the widest element that the stage touches, indices that are the same for all lanes
// aside.
int64_t ElemBytes(const Stage& stage);

// A loop whose iterations are split over as many threads as there is work for; `work`: additions of
// an iteration.
Stmt ParallelLoop(const Var& var, const Expr& extent, const Expr& work, const Stmt& body,
                  arith::Analyzer* analyzer);
// How many points `axes` have; not simplified.
Expr NumPoints(const std::vector<Axis>& axes);
// How many elements a buffer has; not simplified.
Expr NumElements(const Buffer& buffer);
// Binds the axes at point number `index`, which is one of theirs.
void BindPoint(const std::vector<Axis>& axes, Expr index, ffi::Array<Stmt>* seq);
// The value, simplified, as a number or a variable that `seq` binds.
Expr Named(const char* name, const Expr& value, ffi::Array<Stmt>* seq, arith::Analyzer* analyzer);
// A loop over [0, extent); nothing for 0, the body alone for 1.
Stmt Loop(const Var& var, const Expr& extent, tir::ForKind kind, const Stmt& body);
// `loop` with one more annotation.
Stmt Annotated(const tir::ForObj* loop, const char* name, const Expr& value);
// The body for every combination of the axes, outermost first.
Stmt Loops(const std::vector<Axis>& axes, Stmt body);
// acc[0 .. count) = value, one register at a time: registers stay apart when the array becomes
// registers.
Stmt Fill(const Buffer& acc, const Expr& value, int64_t count, int64_t lanes);
// `e` with predicate on every load whose offset uses `lane`.
Expr PredicateLoads(const Expr& e, const Var& lane, const Expr& predicate);

}  // namespace relaxvm::schedule::cpu
