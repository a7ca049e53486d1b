// SPDX-License-Identifier: Apache-2.0
// The machine that code is made for, as schedules see it.  codegen/llvm says what a CPU's registers
// can do (MachineOf: only LLVM knows the features of a named CPU); pipeline/ adds what the running
// system says about caches and cores when the code is for this machine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace relaxvm::target {

// The defaults are what a CPU that is only named is taken for.
struct Machine {
  int64_t vector_bytes = 16;  // of one register
  int64_t num_vectors = 16;   // registers
  bool fma = false;           // multiply and add in one instruction
  // Independent multiply-adds under way that keep the units busy, with a reserve: latency x units.
  int64_t chains = 12;
  int multiply_adds = 2;        // of whole registers that a core begins in a cycle
  bool dot_bf16 = false;        // sums of products of bfloat16 pairs into float32
  bool dot_int8 = false;        // sums of four products of uint8 and int8 into int32
  bool dot_signed = false;      // and of int8 and int8
  bool dot_by_halves = false;   // these by products of 16-bit halves, to which bytes are widened
  bool byte_pairs = false;      // sums of two products of bytes in 16 bits, faster than by halves
  bool matrix_bf16 = false;     // matrix registers (tir/matrix.h) for products of bfloat16,
  bool matrix_int8 = false;     // of bytes of any signs
  int64_t l1_bytes = 32 << 10;  // data caches: of a core,
  int64_t l2_bytes = 512 << 10;
  int64_t l3_bytes = 8 << 20;  // of all cores together; 0: there is none
  int num_cores = 1;           // that the process may use
  // How far ahead it pays to fetch a stream from the caches into the first one; 0: the core does it
  // better by itself.
  int64_t fetch_ahead = 0;
  // The same for the panel of a tile that is alone (schedule/cpu/contraction).
  int64_t panel_ahead = 0;

  int64_t Lanes(int64_t elem_bytes) const {
    return std::max<int64_t>(1, vector_bytes / elem_bytes);
  }
};

// `panel_ahead` of cores with matrix registers, as measured on a Granite Rapids.
inline constexpr int64_t kPanelAheadOfMatrices = 8192;

// Caches of a CPU that is named as LLVM names it, as its makers publish them (where they come in
// several sizes, the usual one), and what was measured on it.  A CPU that is not listed keeps what
// `machine` says.
void DescribeCpu(std::string_view cpu, Machine* machine);

}  // namespace relaxvm::target
