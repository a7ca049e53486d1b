// SPDX-License-Identifier: Apache-2.0
// Convolutions 3x3 with step 1 in Winograd's form F(4x4, 3x3): tiles of 4x4 results come from 36
// products of transformed inputs and weights instead of 144.
//
//   V[a, b] = sum over i, j of B(a, i) B(b, j) data[4y + i, 4x + j]        input
//   M[a, b] = V[a, b] U[a, b]                                              product, over channels
//   out[4y + r, 4x + s] = sum over a, b of A(r, a) A(s, b) M[a, b]         output
//
// Data outside of its bounds is 0.  In volumes z stands before y, and V of layers z, z + 1, .. of
// data meets U of the kernel's layers.  With a dilation d each of the d * d images of every d-th
// pixel is such a convolution; the tiles of all of them are one grid, in which neighbours are those
// of neighbouring images.  Groups of channels have panels of U of their own.  U is made of the
// weights at compile time.  With the points 0, +-5/8, +-3/2 and infinity the largest error stays
// within twice that of adding up the nine products (docs/performance.md).
//
// Tiles of 2x2, F(2x2, 3x3) with the points 0, +-1 and infinity, have 16 products instead of 36:
// 9 / 4 instead of 4 times fewer than there were, but weights less than twice as large instead of
// four times.  They are for images of few tiles, and for weights that would not fit into a cache.
// Where nobody knows how many tiles there will be, they take the weights of those points of tiles
// of 4x4 that a smaller transform has as well (0, +-5/8 and infinity), and what their factors lack
// in the output: no weights of their own.
//
// Bytes, where the machine multiplies their 16-bit halves, have F(2x2, 3x3) with the points 0, +-1
// and infinity: V and four times U are integers of 16 bits, products go by pairs of channels, and
// the sums in 32 bits are four times the results, exactly.
#pragma once

#include <array>

#include "schedule/cpu/cpu.h"

namespace relaxvm::schedule::cpu {

inline constexpr int64_t kWinogradSize = 6;  // of the largest input tile, and of its transform
// The points other than 0 and infinity: +-kWinogradNear, +-kWinogradFar.
inline constexpr double kWinogradNear = 0.625, kWinogradFar = 1.5;

// Of an image whose size is not known.
inline constexpr int64_t kWinogradUsualSize = 64;

// The program with a convolution's weights, `param`, transformed.  Absent when the program is no
// such convolution, or runs better as it is.
std::optional<PackedOperand> WinogradOperand(const PrimFunc& func, size_t param,
                                             const Machine& machine);

struct WinogradForm {
  int64_t channels, filters;  // of a group
  int64_t width;              // of a panel of transformed weights
  int64_t groups = 1;
  int64_t dilation = 1;                       // of y and x
  std::array<int64_t, 3> before = {0, 0, 0};  // zeros before z, y and x

  int64_t tile = 4;        // results of one along y, or x
  bool of_bytes = false;   // by integers
  bool has_plain = false;  // the kernel's nine elements stand behind the points of each panel
  bool of_larger = false;  // tiles of 2x2 by weights for tiles of 4x4

  int64_t Size() const { return tile + 2; }  // of a tile's input, and of the transform
  int64_t Points() const { return Size() * Size(); }
  // Of a panel of weights: points, these and the plain ones, and where a point's stand.
  int64_t PointsOfWeights() const { return of_larger ? kWinogradSize * kWinogradSize : Points(); }
  int64_t PointsAndPlain() const { return PointsOfWeights() + (has_plain ? 9 : 0); }
  Expr PlaceOfPoint(const Expr& point) const;
  // By the same weights.
  WinogradForm WithSmallTiles() const;
  int64_t Pair() const { return of_bytes ? 2 : 1; }  // channels that a product takes together
  int64_t Depth() const { return (channels + Pair() - 1) / Pair(); }
  DLDataType Transformed() const { return of_bytes ? Int(16) : Float(32); }
  DLDataType Summed() const { return of_bytes ? Int(32) : Float(32); }
  // Of an element of data, or of a plain weight, at all points.
  int64_t BytesOfPoints() const { return Points() * SizeInBytes(Transformed()); }
  int64_t PanelsOfGroup() const { return (filters + width - 1) / width; }
  int64_t Stride(const Machine& machine) const;  // of a tile's transform: channels in registers
  // As many as leave their transforms in five eighths of the second cache.
  int64_t NearTiles(const Machine& machine) const;
  // Of a core's share of the last cache, where weights do not stay in the second one.
  int64_t MostTiles(const Machine& machine) const;
  // Rows (or columns) of tiles of `size` results, and the first result of one.
  Expr TilesOf(const Expr& size) const;
  Expr PlaceOf(const Expr& at) const;
};

struct Convolution;
// The size of the tiles with which the form is clearly faster; 0: it is with none.
int64_t TileWorthIt(const Convolution& c, WinogradForm form, const Machine& machine);
// Images may be so small that reading four times as many weights takes longest.
bool NeedsPlain(const Convolution& c, const WinogradForm& form);

// Into how many blocks tiles are cut, and the panels of each group into how many parts: each block
// reads the weights again, each part transforms its block's input again.
struct WinogradTasks {
  int64_t blocks = 1, parts = 1;
};
// Those that end soonest on the machine's cores.
WinogradTasks TasksOf(const WinogradForm& form, int64_t tiles, const Machine& machine);

// Absent unless the stages at, at + 1, at + 2 are those that WinogradOperand makes. Sums of bytes
// are divided by a stage behind them.
std::optional<WinogradForm> ReadWinograd(const Program& program, size_t at);
// Of a form that has the plain weights: the convolution as it is written, with what finishes
// `output`.
Stage PlainStage(const WinogradForm& form, const Stage& input, const Stage& product,
                 const Stage& output);
// Of such a form, as found while running: are there so few tiles that the plain stage is faster,
// and if not, are smaller tiles (undefined: there are none)?
struct FewTiles {
  Expr plain_is_faster, small_are_faster;
};
FewTiles WhenFewTiles(const WinogradForm& form, const Stage& output, const Machine& machine);
// All three, tile block by tile block; `output` with what finishes it.
Stmt EmitWinograd(const WinogradForm& form, const Stage& input, const Stage& product,
                  const Stage& output, const Machine& machine, arith::Analyzer* analyzer);

}  // namespace relaxvm::schedule::cpu
