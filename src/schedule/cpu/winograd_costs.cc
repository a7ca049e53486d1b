// SPDX-License-Identifier: Apache-2.0
// Where Winograd's form is worth it, with which tiles, and how these are cut into tasks.
#include <algorithm>
#include <cmath>

#include "schedule/cpu/context.h"
#include "schedule/cpu/contraction/contraction.h"
#include "schedule/cpu/convolution.h"
#include "schedule/cpu/winograd.h"

namespace relaxvm::schedule::cpu {
namespace {

// That a core gets in a cycle.
constexpr double kBytesFromMemory = 6, kBytesFromCache = 24;
// So many cores take all that memory gives.
constexpr double kCoresOfMemory = 6;

// In the time of one multiply-add of vectors.
double BytesFromMemory(const Machine& machine) {
  const double share = std::min(1.0, kCoresOfMemory / std::max(machine.num_cores, 1));
  return kBytesFromMemory * share / machine.multiply_adds;
}
double BytesFromCache(const Machine& machine) { return kBytesFromCache / machine.multiply_adds; }

// Of a block: weights are read once for each block.  From beyond the second cache that takes so
// long that a block's inputs rather come from there, too: panel by panel, each byte of them serves
// as many filters, and rows one after the other are what the machine fetches ahead by itself.
constexpr int64_t kMostTiles = 24, kMostSmallTiles = 48;
constexpr int64_t kMostFarTiles = 64, kMostSmallFarTiles = 128;
// How much faster the form must be: with sizes that are known when it is compiled, that are not,
// with weights from memory as well, and (in hundredths) found while running.
constexpr double kGain = 1.05, kGainOfUsual = 1.2, kGainInDoubt = 1.5;
constexpr int64_t kHundredths = 100, kGainOfRun = 110, kGainOfSmall = 125;
constexpr double kMemoryTaken = 1.1;  // tiles of 4x4 than those of 2x2, where weights are large
// Of a layer's weights for tiles of 4x4: they are four times the plain ones, and stay in memory.
constexpr double kMostBytes = 64 << 20;
constexpr int64_t kUsualDepth = 16;        // of a volume whose size is not known
constexpr int64_t kManyWeights = 64 * 64;  // for each kernel element: code for both forms pays

// Of the windows along dimension `d` and three elements of the kernel, the share on data.
double ShareOnData(const Convolution& c, int64_t d, size_t spatial) {
  const int64_t size = ir::AsInt(c.data.shape()[d]).value_or(kWinogradUsualSize),
                windows = ir::AsInt(c.out.shape()[d]).value_or(kWinogradUsualSize);
  int64_t on_data = 0;
  for (int64_t k = 0; k < 3; ++k) {
    const int64_t place = k * c.dilation - c.before[spatial];  // in the first window
    on_data +=
        std::max<int64_t>(0, std::min(windows, size - place) - std::max<int64_t>(0, 0 - place));
  }
  return static_cast<double>(on_data) / static_cast<double>(3 * windows);
}

// Do four times the sums fit into 32 bits, whatever the bytes are?
bool FitsBytes(const Convolution& c) {
  auto largest = [](const Buffer& bytes) -> int64_t {
    return IsUInt(bytes.elem_dtype()) ? 255 : 128;
  };
  return 4 * 9 * c.channels * largest(c.data) * largest(c.weight) < int64_t{1} << 31;
}

// In the time of a multiply-add of vectors; `steps` are those of a pixel's sum, `in` and `out` are
// vectors of channels and of filters.
constexpr double kStoringPixel = 6;
double CostOfPixel(double steps, double out) { return steps * out + kStoringPixel; }
// Of one vector of a tile's input, and of its output: the transforms move the points' vectors in
// and out.  3 cycles of the product's tiles are lost for each register.
struct TileCosts {
  double in, out;
};
TileCosts CostsOfTile(const WinogradForm& form, double depth) {
  if (form.of_bytes) return {20, 16 * (depth + 1.5) + 15};
  const double product = static_cast<double>(form.Points()) * (depth + 3);
  return form.tile == 2 ? TileCosts{75, product + 65} : TileCosts{300, product + 260};
}
double CostOfTile(const WinogradForm& form, double depth, double in, double out) {
  const TileCosts costs = CostsOfTile(form, depth);
  return costs.in * in + costs.out * out;
}

// Do transformed weights of so many bytes leave room in the last cache?
bool FitsCache(double bytes, const Machine& machine) {
  return bytes <= static_cast<double>(machine.l3_bytes > 0 ? machine.l3_bytes : 8 << 20) / 3;
}

// Of work and what is fetched meanwhile.
double Beside(double work, double reading) {
  return std::max(work, reading) + std::min(work, reading) / 2;
}

// Is the form faster for bytes?  In the time of a product of a vector's pairs and its addition;
// computed directly some of the weights go by larger steps (PairNotes).
bool IsWorthItForBytes(const Convolution& c, const WinogradForm& form, const Machine& machine) {
  const int64_t lanes = machine.Lanes(4);
  if (!machine.dot_by_halves || c.has_depth || lanes < 4 || c.kernel[0] != 3 || c.kernel[1] != 3 ||
      (c.groups > 1 && c.filters < lanes) || !FitsBytes(c))
    return false;
  auto size = [&](int64_t dim, int64_t usual) {
    return ir::AsInt(c.out.shape()[dim]).value_or(usual);
  };
  auto tiles_of = [&](int64_t results) {
    return static_cast<double>(ir::AsInt(form.TilesOf(results)).value());
  };
  const auto images = static_cast<double>(size(0, 1));
  const int64_t height = size(1, kWinogradUsualSize), across = size(2, kWinogradUsualSize);
  const double tiles = images * tiles_of(height) * tiles_of(across);
  const auto in = static_cast<double>((c.channels + 2 * lanes - 1) / (2 * lanes)),
             out = static_cast<double>((c.filters + lanes - 1) / lanes),
             depth = static_cast<double>(form.Depth());
  const double columns = static_cast<double>(form.PanelsOfGroup() * form.width);
  const double direct_bytes = 9 * columns * 2 * depth, bytes = 4 * 16 * columns * depth;
  const double from_memory = BytesFromMemory(machine);
  const double direct =
      images * static_cast<double>(height * across) * (9 * 0.85 * depth + 6) * out +
      direct_bytes / from_memory;
  const double work = tiles * CostOfTile(form, depth, in, out);
  const double reading =
      bytes / from_memory + bytes / BytesFromCache(machine) * std::max(0.0, tiles / 48 - 1);
  return FitsCache(bytes * static_cast<double>(c.groups), machine) && work + reading < direct;
}

// Computed directly, groups side by side in a vector: a product with what picks its left side,
// from the same quarter of the register or from others.
constexpr double kProductAndPick = 1.5, kProductAndFarPick = 2;
constexpr int64_t kQuarter = 4;

// Steps of a pixel's sum of one vector of filters, computed directly.
double StepsOfPixel(const Convolution& c, const WinogradForm& form, int64_t lanes) {
  const auto steps = static_cast<double>(9 * c.channels * c.layers);
  if (form.groups == c.groups) return steps;
  // Else a vector of one group is mostly empty.
  if (lanes % c.filters != 0) return steps * static_cast<double>(form.filters / c.filters);
  return steps * (c.channels > kQuarter ? kProductAndFarPick : kProductAndPick);
}

// A pixel of few filters computed directly, with vectors along the sum, and the padded copy of its
// data, if there is one; more than tiles take where that form is none.
double CostOfFewFilters(const Convolution& c, int64_t lanes, double otherwise) {
  constexpr double kCopy = 12;  // of a vector
  if (c.groups > 1 || c.dilation > 1 || c.neighbours > 1 || !AreFewColumns(c.filters, lanes))
    return otherwise;
  const int64_t of_row = (3 * c.channels + lanes - 1) / lanes;
  const double copy =
      c.is_padded ? static_cast<double>(c.channels) / static_cast<double>(lanes) * kCopy : 0;
  return std::min(otherwise,
                  CostOfFewColumns(3 * c.layers * of_row, c.filters) + copy + kStoringPixel);
}

// Of a convolution of floats, in cycles of one multiply-add of vectors; measured shares.
struct Costs {
  double direct = 0, tiles = 0;
  double bytes = 0;   // of all transformed weights
  bool fits = false;  // FitsCache
};
Costs CostsOf(const Convolution& c, const WinogradForm& form, const Machine& machine) {
  const int64_t lanes = machine.Lanes(4), at = c.has_depth ? 2 : 1;
  auto size = [&](int64_t dim, int64_t usual) {
    return ir::AsInt(c.out.shape()[dim]).value_or(usual);
  };
  auto tiles_of = [&](int64_t results) {
    return static_cast<double>(ir::AsInt(form.TilesOf(results)).value());
  };
  const auto images = static_cast<double>(size(0, 1) * (c.has_depth ? size(1, kUsualDepth) : 1));
  const int64_t height = size(at, kWinogradUsualSize), across = size(at + 1, kWinogradUsualSize);
  const double tiles = images * tiles_of(height) * tiles_of(across);
  const auto in = static_cast<double>((form.channels + lanes - 1) / lanes),
             out = static_cast<double>((form.filters + lanes - 1) / lanes);
  const auto depth = static_cast<double>(form.channels * c.layers);
  const double share = (c.leaves_y_out ? ShareOnData(c, at, 1) : 1.0) *
                       (c.leaves_x_out ? ShareOnData(c, at + 1, 2) : 1.0);
  const double columns = static_cast<double>(form.PanelsOfGroup() * form.width);
  const double of_point = 4.0 * columns * depth;
  const double bytes = static_cast<double>(form.Points()) * of_point;
  // Weights come from memory in each run, as those of other layers are used between two, and once
  // more for each block of tiles.
  const double from_memory = BytesFromMemory(machine);
  Costs costs;
  costs.bytes = bytes * static_cast<double>(form.groups);
  costs.fits = FitsCache(costs.bytes, machine);
  const double steps = StepsOfPixel(c, form, lanes) * share / static_cast<double>(c.neighbours);
  const double of_pixel = CostOfFewFilters(c, lanes, CostOfPixel(steps, out));
  costs.direct =
      Beside(images * static_cast<double>(height * across) * of_pixel, 9 * of_point / from_memory);
  const double blocks = std::ceil(
      tiles / static_cast<double>(c.has_depth ? form.NearTiles(machine) : form.MostTiles(machine)));
  // Where the kernel is deep some layers are transformed for two blocks.
  const double again = c.layers > 1 ? 1.5 : 1;
  costs.tiles =
      Beside(tiles * CostOfTile(form, depth, again * in, out),
             bytes / from_memory +
                 (blocks - 1) * bytes / (costs.fits ? BytesFromCache(machine) : from_memory));
  return costs;
}

bool AreSizesKnown(const Convolution& c) {
  const int64_t at = c.has_depth ? 2 : 1;
  return ir::AsInt(c.out.shape()[at]).has_value() && ir::AsInt(c.out.shape()[at + 1]).has_value();
}

}  // namespace

int64_t TileWorthIt(const Convolution& c, WinogradForm form, const Machine& machine) {
  if (c.of_bytes) return IsWorthItForBytes(c, form, machine) ? form.tile : 0;
  const int64_t lanes = machine.Lanes(4);
  if (lanes < 4 || c.kernel[0] != 3 || c.kernel[1] != 3) return 0;
  const bool are_known = AreSizesKnown(c);
  int64_t best = 0;
  double least = 0;
  for (int64_t tile : {4, 2}) {
    form.tile = tile;
    const Costs costs = CostsOf(c, form, machine);
    // Nobody knows whether there will be as many tiles as such weights need.
    const bool is_doubtful = !costs.fits && !are_known;
    if (tile == 4 && (is_doubtful || costs.bytes > kMostBytes)) continue;
    const double time = tile == 4 && !costs.fits ? costs.tiles * kMemoryTaken : costs.tiles;
    const double gain = is_doubtful ? kGainInDoubt : are_known ? kGain : kGainOfUsual;
    if (costs.tiles * gain < costs.direct && (best == 0 || time < least)) {
      best = tile;
      least = time;
    }
  }
  return best;
}

// Panels of several groups are no one axis to tiles.
bool NeedsPlain(const Convolution& c, const WinogradForm& form) {
  return !AreSizesKnown(c) && !c.has_depth && !c.of_bytes &&
         (c.groups == 1 || form.PanelsOfGroup() == 1) && c.groups == form.groups &&
         c.groups * c.channels * c.filters >= kManyWeights;
}

FewTiles WhenFewTiles(const WinogradForm& form, const Stage& output, const Machine& machine) {
  const int64_t lanes = machine.Lanes(4);
  const auto depth = static_cast<double>(form.channels),
             in = static_cast<double>((form.channels + lanes - 1) / lanes),
             out = static_cast<double>((form.filters + lanes - 1) / lanes);
  const double of_point = static_cast<double>(form.groups * form.channels * form.PanelsOfGroup() *
                                              form.width * 4),
               from_memory = BytesFromMemory(machine);
  auto cost = [&](const Expr& places, double work_of_place, const Expr& points) {  // twice
    const Expr work = places * Expr(static_cast<int64_t>(work_of_place)),
               reading = points * Expr(static_cast<int64_t>(of_point / from_memory));
    return work + reading + ir::Max(work, reading);
  };
  const Expr images = output.spatial[0].extent * Expr(form.groups);
  auto cost_of_tiles = [&](const WinogradForm& of) {
    const Expr tiles =
        images * of.TilesOf(output.spatial[1].extent) * of.TilesOf(output.spatial[2].extent);
    return cost(tiles, CostOfTile(of, depth, in, out), Expr(of.Points()));
  };
  // Of three elements of the kernel along an axis those that are not on padding, for all places.
  Expr products = images, elements = 1;
  for (int64_t d : {1, 2}) {
    const Expr& size = output.spatial[static_cast<size_t>(d)].extent;
    const Expr beside = ir::Max(size - Expr(form.before[static_cast<size_t>(d)]), 0);
    products = products * (size + beside * Expr(2));
    elements = elements * ir::Select(ir::Less(0, beside), Expr(3), Expr(1));
  }
  FewTiles few;
  Expr tiles = cost_of_tiles(form);
  if (form.tile == 4) {
    const Expr small = cost_of_tiles(form.WithSmallTiles());
    few.small_are_faster = ir::Less(small * Expr(kGainOfSmall), tiles * Expr(kHundredths));
    tiles = ir::Min(small, tiles);
  }
  few.plain_is_faster =
      ir::Less(cost(products, CostOfPixel(depth, out), elements) * Expr(kHundredths),
               tiles * Expr(kGainOfRun));
  return few;
}

int64_t WinogradForm::NearTiles(const Machine& machine) const {
  const int64_t bytes = BytesOfPoints() * Stride(machine);
  return std::clamp<int64_t>(machine.l2_bytes * 5 / 8 / bytes, 6,
                             tile == 2 ? kMostSmallTiles : kMostTiles);
}

int64_t WinogradForm::MostTiles(const Machine& machine) const {
  const int64_t near = NearTiles(machine);
  if (of_bytes || BytesOfPoints() * channels * PanelsOfGroup() * width <= 2 * machine.l2_bytes)
    return near;
  const int64_t bytes = BytesOfPoints() * Stride(machine);
  const int64_t most = machine.l3_bytes / std::max(machine.num_cores, 1) * 5 / 8 / bytes;
  return std::clamp<int64_t>(most, near, tile == 2 ? kMostSmallFarTiles : kMostFarTiles);
}

WinogradTasks TasksOf(const WinogradForm& form, int64_t tiles, const Machine& machine) {
  constexpr int64_t kFewestTiles = 4;  // of a block: products of few rows wait for the weights
  constexpr int64_t kMoreOfCore = 4;   // blocks than need be
  const int64_t lanes = machine.Lanes(4), panels = form.PanelsOfGroup(), cores = machine.num_cores;
  const auto depth = static_cast<double>(form.Depth()),
             in = std::ceil(depth / static_cast<double>(lanes)),
             vectors = static_cast<double>(form.width / lanes);
  const TileCosts costs = CostsOfTile(form, depth);
  const double of_panel =
      static_cast<double>(form.BytesOfPoints() * form.width * form.Pair()) * depth;
  const double all = of_panel * static_cast<double>(panels * form.groups);
  const double rate = FitsCache(all, machine) ? BytesFromCache(machine) : BytesFromMemory(machine);
  WinogradTasks best;
  double least = 0;
  const int64_t fewest = (tiles + form.MostTiles(machine) - 1) / form.MostTiles(machine);
  const int64_t most = std::min(fewest + kMoreOfCore * cores, tiles / kFewestTiles);
  for (int64_t blocks = fewest; blocks <= std::max(fewest, most); ++blocks) {
    const auto of_block = static_cast<double>((tiles + blocks - 1) / blocks);
    for (int64_t parts = 1; parts <= panels; ++parts) {
      const int64_t each = (panels + parts - 1) / parts;
      if ((panels + each - 1) / each != parts) continue;  // as many panels by fewer parts
      const int64_t rounds = (form.groups * blocks * parts + cores - 1) / cores;
      const double work =
          of_block * (costs.in * in + static_cast<double>(each) * costs.out * vectors);
      const double time =
          static_cast<double>(rounds) * Beside(work, static_cast<double>(each) * of_panel / rate);
      if (least == 0 || time < least) {
        best = {blocks, parts};
        least = time;
      }
    }
  }
  return best;
}

}  // namespace relaxvm::schedule::cpu
