// SPDX-License-Identifier: Apache-2.0
// Convolutions as Winograd's form sees them: channels last, step 1, zeros around the data.
//
//   out[n, y, x, f] = sum over i, j, c of  data[n, y + i * dilation - before, .., g * channels + c]
//                                          * weight[i, j, c, f],   g = f / filters
//
// added up in float32, where data and weights may be narrower, or in int32 of bytes; data outside
// of its bounds is 0.  In volumes there is z before y, and the kernel is `layers` deep.
#pragma once

#include <array>

#include "schedule/cpu/cpu.h"

namespace relaxvm::schedule::cpu {

struct Convolution {
  Buffer data, weight, out;
  bool has_depth;
  int64_t layers = 1;
  std::array<int64_t, 2> kernel = {1, 1};
  int64_t channels = 0, filters = 0;  // of a group
  int64_t groups = 1;
  int64_t dilation = 1;                             // of y and x
  std::array<int64_t, 3> before = {0, 0, 0};        // zeros before z, y and x
  bool is_padded = false;                           // by the stage before it
  bool leaves_y_out = false, leaves_x_out = false;  // padding, of sums computed as written
  int64_t neighbours = 1;  // channels in the time of one instruction where it is computed directly
  bool of_bytes = false;
};

// Stage `at`, which multiplies data with the parameter `weight`.  Absent when it is no convolution
// of this form, or sizes of its kernel are not known.
std::optional<Convolution> ReadConvolution(const Program& program, size_t at, const Var& weight,
                                           const Machine& machine);

}  // namespace relaxvm::schedule::cpu
