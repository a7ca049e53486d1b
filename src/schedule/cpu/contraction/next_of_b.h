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

  // Binds what WhileFetching asks for in each loop over the sum.
  void Bind(ffi::Array<Stmt>* seq) const;

  // How a loop ends that fetches until all is fetched.
  enum class End {
    kBranch,    // around what fetches
    kSameLine,  // the one after the share is fetched again and again, out of the second cache
    kLoop,      // another loop, which does not fetch
  };
  // `count` iterations over the innermost axis of the sum.
  Stmt WhileFetching(const Var& iteration, const Expr& count, const Stmt& body, End end) const;

 private:
  const Contraction& c_;
  const PartOfNext& next_;
  arith::Analyzer* analyzer_;
  int64_t steps_;
  int64_t lines_;        // of B that an iteration uses
  int64_t lines_each_;   // that a round fetches
  int64_t most_rounds_;  // of an iteration
  // Rounds of an iteration, iterations that fetch, and the tile's first line.
  Var rounds_{"rounds", Int(64)}, fetching_{"fetching", Int(64)}, first_{"first_line", Int(64)};
};

}  // namespace relaxvm::schedule::cpu
