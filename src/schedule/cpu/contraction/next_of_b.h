// SPDX-License-Identifier: Apache-2.0
// What a tile fetches into the second cache of the rows of B that are used after its own: B comes
// from memory in the time that other rows of it are used in.
#pragma once

#include "schedule/cpu/contraction/contraction.h"

namespace relaxvm::schedule::cpu {

class NextOfB {
 public:
  // Iterations over the innermost axis of the sum take so many steps of it.
  NextOfB(const Contraction& c, const PartOfNext& next, int64_t steps_of_iteration,
          arith::Analyzer* analyzer);

  // Binds what WhileFetching asks for in each loop over the sum: divisions, done once for a tile.
  void Bind(ffi::Array<Stmt>* seq) const;

  // `count` iterations over the innermost axis of the sum, which fetch until all is fetched; a line
  // that the second cache has costs as much as another one.  Code that is small stands there once
  // more for those that do not fetch.
  Stmt WhileFetching(const Var& iteration, const Expr& count, const Stmt& body,
                     bool is_small) const;

 private:
  int64_t LinesOf(int64_t steps) const;
  // Has the code a form of its own for two or three tiles, and how many lines does an iteration
  // fetch there?
  bool HasFewTiles() const;
  int64_t LinesOfFew() const { return (lines_ + 1) / 2; }
  // `rounds` times the next `lines` lines, `from` times as many behind the first one.
  Stmt Fetch(const Var& round, const Expr& rounds, const Expr& from, int64_t lines) const;

  const Contraction& c_;
  const PartOfNext& next_;
  arith::Analyzer* analyzer_;
  int64_t steps_;
  int64_t lines_;       // of B that an iteration uses
  int64_t lines_each_;  // that a round fetches
  // Rounds of an iteration; iterations that fetch, of all tiles together and of each.
  Var rounds_{"rounds", Int(64)}, fetching_{"fetching", Int(64)}, share_{"share", Int(64)};
};

}  // namespace relaxvm::schedule::cpu
