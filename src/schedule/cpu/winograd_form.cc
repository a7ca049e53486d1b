// SPDX-License-Identifier: Apache-2.0
// WinogradOperand: from a convolution to the three stages of its Winograd form, and back
// (ReadWinograd).
#include <algorithm>
#include <cmath>

#include "schedule/cpu/context.h"
#include "schedule/cpu/convolution.h"
#include "schedule/cpu/winograd.h"
#include "schedule/cpu/winograd_values.h"
#include "target/packed.h"
#include "tir/tensor.h"

namespace relaxvm::schedule::cpu {
namespace {

using tir::BufferLoadObj;
using tir::Indices;
using tir::Tensor;

WinogradLoad LoadsOf(const Tensor& tensor) {
  return [&tensor](const Indices& i) { return tensor(i); };
}
WinogradLoad LoadsOf(const Buffer& buffer) {
  return [&buffer](const Indices& i) { return buffer.Load(i); };
}

WinogradForm FormOf(const Convolution& c, const Machine& machine) {
  const int64_t width = target::PanelVectors(machine, c.filters, 4, c.of_bytes) * machine.Lanes(4);
  WinogradForm form{c.channels, c.filters, width, c.groups, c.dilation, c.before};
  form.of_bytes = c.of_bytes;
  if (c.of_bytes) form.tile = 2;
  return form;
}

// That a core gets in the time of one multiply-add of vectors.
constexpr double kBytesFromMemory = 3, kBytesFromCache = 12;
// So many cores take all that memory gives.
constexpr double kCoresOfMemory = 6;

double ShareOfMemory(const Machine& machine) {
  return std::min(1.0, kCoresOfMemory / std::max(machine.num_cores, 1));
}

// Of a block: weights are read once for each block.  From beyond the second cache that takes so
// long that a block's inputs rather come from there, too: panel by panel, each byte of them serves
// as many filters, and rows one after the other are what the machine fetches ahead by itself.
constexpr int64_t kMostTiles = 24, kMostSmallTiles = 48;
constexpr int64_t kMostFarTiles = 64, kMostSmallFarTiles = 128;
// How much faster the form must be: known when it is compiled, not known and with weights from
// memory, and (in hundredths) found while running.
constexpr double kGain = 1.2, kGainInDoubt = 1.5;
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
double CostOfPixel(double steps, double out) { return steps * out + 6; }
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

double CacheOf(const Machine& machine) {
  return static_cast<double>(machine.l3_bytes > 0 ? machine.l3_bytes : 8 << 20);
}
// Do transformed weights of so many bytes leave room in the last cache?
bool FitsCache(double bytes, const Machine& machine) { return bytes <= CacheOf(machine) / 3; }

// Of work and what is fetched meanwhile.
double Beside(double work, double reading) {
  return std::max(work, reading) + std::min(work, reading) / 2;
}

// The same for bytes, in the time of a product of a vector's pairs and its addition; computed
// directly some of the weights go by larger steps (PairNotes).
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
  const double from_memory = kBytesFromMemory * ShareOfMemory(machine);
  const double direct =
      images * static_cast<double>(height * across) * (9 * 0.85 * depth + 6) * out +
      direct_bytes / from_memory;
  const double work = tiles * CostOfTile(form, depth, in, out);
  const double reading =
      bytes / from_memory + bytes / kBytesFromCache * std::max(0.0, tiles / 48 - 1);
  return FitsCache(bytes * static_cast<double>(c.groups), machine) && work + reading < direct;
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
  const auto in = static_cast<double>((c.channels + lanes - 1) / lanes),
             out = static_cast<double>((c.filters + lanes - 1) / lanes);
  const auto depth = static_cast<double>(c.channels * c.layers);
  const double share =
      c.leaves_padding_out ? ShareOnData(c, at, 1) * ShareOnData(c, at + 1, 2) : 1.0;
  const double columns = static_cast<double>(form.PanelsOfGroup() * form.width);
  const double of_point = 4.0 * columns * depth;
  const double bytes = static_cast<double>(form.Points()) * of_point;
  // Weights come from memory in each run, as those of other layers are used between two, and once
  // more for each block of tiles.
  const double from_memory = kBytesFromMemory * ShareOfMemory(machine);
  Costs costs;
  costs.bytes = bytes * static_cast<double>(c.groups);
  costs.fits = FitsCache(costs.bytes, machine);
  const double steps = 9 * share * depth / static_cast<double>(c.neighbours);
  costs.direct = Beside(images * static_cast<double>(height * across) * CostOfPixel(steps, out),
                        9 * of_point / from_memory);
  const double blocks = std::ceil(
      tiles / static_cast<double>(c.has_depth ? form.NearTiles(machine) : form.MostTiles(machine)));
  // Where the kernel is deep some layers are transformed for two blocks.
  const double again = c.layers > 1 ? 1.5 : 1;
  costs.tiles = Beside(
      tiles * CostOfTile(form, depth, again * in, out),
      bytes / from_memory + (blocks - 1) * bytes / (costs.fits ? kBytesFromCache : from_memory));
  return costs;
}

bool AreSizesKnown(const Convolution& c) {
  const int64_t at = c.has_depth ? 2 : 1;
  return ir::AsInt(c.out.shape()[at]).has_value() && ir::AsInt(c.out.shape()[at + 1]).has_value();
}

// The size of the tiles with which the form is clearly faster; 0: it is with none.
int64_t TileWorthIt(const Convolution& c, WinogradForm form, const Machine& machine) {
  if (c.of_bytes) return IsWorthItForBytes(c, form, machine) ? form.tile : 0;
  const int64_t lanes = machine.Lanes(4);
  // Groups that do not fill a vector lie side by side in one where they are computed directly.
  if (lanes < 4 || c.kernel[0] != 3 || c.kernel[1] != 3 || (c.groups > 1 && c.filters < lanes))
    return 0;
  int64_t best = 0;
  double least = 0;
  for (int64_t tile : {4, 2}) {
    form.tile = tile;
    const Costs costs = CostsOf(c, form, machine);
    // Nobody knows whether there will be as many tiles as such weights need.
    const bool is_doubtful = !costs.fits && !AreSizesKnown(c);
    if (tile == 4 && (is_doubtful || costs.bytes > kMostBytes)) continue;
    const double time = tile == 4 && !costs.fits ? costs.tiles * kMemoryTaken : costs.tiles;
    if (costs.tiles * (is_doubtful ? kGainInDoubt : kGain) < costs.direct &&
        (best == 0 || time < least)) {
      best = tile;
      least = time;
    }
  }
  return best;
}

// Images may be so small that reading four times as many weights takes longest.
// Panels of several groups are no one axis to tiles.
bool NeedsPlain(const Convolution& c, const WinogradForm& form) {
  return !AreSizesKnown(c) && !c.has_depth && !c.of_bytes &&
         (c.groups == 1 || form.PanelsOfGroup() == 1) &&
         c.groups * c.channels * c.filters >= kManyWeights;
}

PrimFunc TransformWeights(const Convolution& c, const WinogradForm& form, const Buffer& plain,
                          const ffi::Array<Expr>& shape) {
  Tensor x("plain", plain.shape(), plain.elem_dtype());
  Tensor transformed = tir::Compute(
      shape,
      [&](const Indices& i) {
        const int64_t panels = form.PanelsOfGroup();
        const Expr of_group = ir::FloorMod(i[0], panels) * Expr(form.width) + i[3];
        const Expr filter = ir::FloorDiv(i[0], panels) * Expr(form.filters) + of_group;
        Expr channel = ir::FloorMod(i[2], form.Depth()), inside = ir::Less(of_group, form.filters);
        if (form.of_bytes) {
          channel = channel * Expr(form.Pair()) + i[4];
          inside = ir::And(inside, ir::Less(channel, form.channels));
        }
        Expr value = WinogradWeight(
            form,
            [&](const Indices& at) {
              Indices from = {at[0], at[1], channel, filter};
              if (c.has_depth)
                from = {ir::FloorDiv(i[2], c.channels), at[0], at[1], channel, filter};
              return x(from);
            },
            ir::FloorDiv(i[1], form.Size()), ir::FloorMod(i[1], form.Size()));
        if (form.has_plain) {
          const Expr element = i[1] - Expr(form.Points());
          const Expr plain_value =
              x({ir::FloorDiv(element, 3), ir::FloorMod(element, 3), channel, filter});
          value = ir::IfThenElse(ir::Less(element, 0), value,
                                 ir::Cast(form.Transformed(), plain_value));
        }
        return ir::IfThenElse(inside, value, ir::Const(form.Transformed(), 0));
      },
      "transformed");
  return tir::CreatePrimFunc({x}, {transformed});
}

// The three stages as statements over the convolution's buffers.
std::vector<tir::Stmt> ThreeStages(const Convolution& c, const WinogradForm& form,
                                   const Buffer& weight) {
  const ffi::Array<Expr>&in = c.data.shape(), &out = c.out.shape();
  const int64_t at = c.has_depth ? 2 : 1;
  const tir::Reducer sum = tir::SumReducer(form.Summed());
  const Expr size = form.Size();
  Tensor data("data", in, c.data.elem_dtype()), u("weight", weight.shape(), form.Transformed());
  auto shape = [&](int64_t layers, int64_t last) {
    ffi::Array<Expr> dims = {size, size, out[0]};
    if (c.has_depth) dims.push_back(out[1] + Expr(layers - 1));
    for (const Expr& dim : {form.TilesOf(out[at]), form.TilesOf(out[at + 1]), Expr(last)})
      dims.push_back(dim);
    return dims;
  };
  Tensor v = tir::Reduce(
      shape(c.layers, form.groups * form.channels), {size, size},
      tir::SumReducer(form.Transformed()),
      [&](const Indices& i, const Indices& r) {
        return WinogradInput(form, LoadsOf(data), in, i, r);
      },
      "winograd_input");
  ffi::Array<Expr> summed = {Expr(form.channels)};
  if (c.has_depth) summed = {Expr(c.layers), Expr(form.channels)};
  Tensor m = tir::Reduce(
      shape(1, form.groups * form.filters), summed, sum,
      [&](const Indices& i, const Indices& r) {
        return WinogradProduct(form, LoadsOf(v), LoadsOf(u), i, r);
      },
      "winograd_product");
  Tensor y = tir::Reduce(
      out, {size, size}, sum,
      [&](const Indices& i, const Indices& r) { return WinogradOutput(form, LoadsOf(m), i, r); },
      "winograd_output");
  if (form.of_bytes) {
    const Tensor sums = y;
    y = tir::Compute(
        out, [&](const Indices& i) { return WinogradResult(form, sums(i)); }, "winograd_result");
  }
  ffi::Array<Var> sizes;
  for (const ffi::Array<Expr>* shape : {&in, &out}) {
    for (const Expr& dim : *shape) {
      for (const Var& var : ir::FreeVars(dim)) {
        if (std::none_of(sizes.begin(), sizes.end(),
                         [&](const Var& known) { return known.same_as(var); }))
          sizes.push_back(var);
      }
    }
  }
  const PrimFunc made = tir::CreatePrimFunc({data, u}, {y}, sizes);

  // Its parameters are new: back to those of the convolution.
  class Replacer : public tir::StmtMutator {
   public:
    using StmtMutator::Replace;
  } replacer;
  replacer.Replace(made->params[0], c.data);
  replacer.Replace(made->params[1], weight);
  replacer.Replace(made->params[2], c.out);
  for (size_t i = 0; i < sizes.size(); ++i)
    replacer.Replace(made->params[static_cast<int64_t>(3 + i)], sizes[static_cast<int64_t>(i)]);
  std::vector<tir::Stmt> parts;
  for (const tir::Stmt& part : made->body.as<tir::SeqStmtObj>()->seq)
    parts.push_back(replacer.Mutate(part));
  return parts;
}

// Is a stage the elements of `buffer`, in place, in another type?
bool RoundsOnly(const Stage& stage, const Buffer& buffer) {
  if (stage.IsOpaque() || !stage.reduce.empty()) return false;
  const auto* load = StripCasts(stage.value).as<BufferLoadObj>();
  if (load == nullptr || !load->buffer.same_as(buffer) ||
      load->indices.size() != stage.indices.size())
    return false;
  for (int64_t d = 0; d < static_cast<int64_t>(load->indices.size()); ++d) {
    if (!load->indices[d].same_as(stage.indices[d])) return false;
  }
  return true;
}

// The form that such stages have, if they are those of any.
std::optional<WinogradForm> CandidateOf(const Stage& input, const Stage& product,
                                        const Stage& output, const Buffer& source,
                                        const Buffer& weight) {
  auto extent = [](const Axis& axis) { return ir::AsInt(axis.extent).value_or(0); };
  WinogradForm form{extent(product.reduce.back()), 0, ir::AsInt(weight.shape()[3]).value_or(0)};
  form.of_bytes = weight.elem_dtype() == Int(16);
  form.tile = extent(output.reduce[0]) - 2;
  if (form.tile != 2 && (form.tile != 4 || form.of_bytes)) return std::nullopt;
  form.has_plain = !ir::IsIntValue(weight.shape()[1], form.Points());
  if (!ir::IsIntValue(weight.shape()[1], form.PointsAndPlain())) return std::nullopt;
  const int64_t channels = extent(input.spatial.back()), filters = extent(output.spatial.back());
  if (form.channels < 1 || form.width < 1 || channels % form.channels != 0) return std::nullopt;
  form.groups = channels / form.channels;
  if (form.groups < 1 || filters < 1 || filters % form.groups != 0) return std::nullopt;
  form.filters = filters / form.groups;

  // The first tile's first element of data, and the next one.
  ffi::Map<Var, Expr> first, next;
  for (const auto* axes : {&input.spatial, &input.reduce}) {
    for (const Axis& axis : *axes) {
      first.Set(axis.var, Expr(0));
      next.Set(axis.var, Expr(axes == &input.reduce ? 1 : 0));
    }
  }
  const BufferLoadObj* load = nullptr;
  tir::PostOrderVisit(tir::Evaluate(input.value), [&](const ffi::ObjectRef& node) {
    const auto* here = node.as<BufferLoadObj>();
    if (here != nullptr && here->buffer.same_as(source)) load = here;
  });
  arith::Analyzer analyzer;
  const size_t rank = load->indices.size();
  for (size_t d = 1; d + 1 < rank; ++d) {
    const Expr& index = load->indices[static_cast<int64_t>(d)];
    const auto from = ir::AsInt(analyzer.Simplify(tir::Substitute(index, first))),
               to = ir::AsInt(analyzer.Simplify(tir::Substitute(index, next)));
    if (!from.has_value() || !to.has_value()) return std::nullopt;
    form.before[d + 4 - rank] = -*from;
    form.dilation = *to - *from;
  }
  return form.dilation < 1 ? std::nullopt : std::optional(form);
}

}  // namespace

std::optional<PackedOperand> WinogradOperand(const PrimFunc& func, size_t param,
                                             const Machine& machine) {
  if (!tir::IsBuffer(func->params[static_cast<int64_t>(param)])) return std::nullopt;
  const Buffer plain(func->params[static_cast<int64_t>(param)]);
  std::optional<Program> program = ParseProgram(func);
  const auto* parts = func->body.as<tir::SeqStmtObj>();
  if (!program.has_value()) return std::nullopt;
  const auto at = std::find_if(program->stages.begin(), program->stages.end(),
                               [&](const Stage& stage) { return ReadsBuffer(stage, plain); });
  if (at == program->stages.end() || (parts == nullptr && program->stages.size() != 1))
    return std::nullopt;
  const auto number = static_cast<size_t>(at - program->stages.begin());
  std::optional<Convolution> c = ReadConvolution(*program, number, plain, machine);
  // Nothing but padding comes before; the convolution is the result, or what it is rounded to.
  if (!c.has_value() || number != (c->is_padded ? 1U : 0U)) return std::nullopt;
  for (auto after = at + 1; after != program->stages.end(); ++after) {
    if (after != at + 1 || !RoundsOnly(*after, c->out) || ReadsBuffer(*after, plain))
      return std::nullopt;
  }
  const Stage& last = program->stages.back();
  if (last.IsOpaque() || !last.out.has_value() || !func->params.back().same_as(*last.out))
    return std::nullopt;
  WinogradForm form = FormOf(*c, machine);
  form.tile = TileWorthIt(*c, form, machine);
  if (form.tile == 0) return std::nullopt;
  form.has_plain = NeedsPlain(*c, form);

  ffi::Array<Expr> shape = {form.groups * form.PanelsOfGroup(), form.PointsAndPlain(),
                            c->layers * form.Depth(), form.width};
  if (form.of_bytes) shape.push_back(form.Pair());
  const Buffer weight(plain->name, shape, form.Transformed());
  ffi::Array<tir::Stmt> allocs, nests;
  auto add = [&](const tir::Stmt& part) {
    (part.as<tir::AllocBufferObj>() ? allocs : nests).push_back(part);
  };
  for (const tir::Stmt& part : ThreeStages(*c, form, weight)) add(part);
  if (parts != nullptr) {
    size_t stage = 0;
    for (const tir::Stmt& part : parts->seq) {
      const auto* alloc = part.as<tir::AllocBufferObj>();
      const bool gone = alloc != nullptr ? c->is_padded && Writes(program->stages[0], alloc->buffer)
                                         : stage++ <= number;
      if (!gone) add(part);
    }
  }
  for (const tir::Stmt& nest : nests) allocs.push_back(nest);
  auto copy = ffi::make_object<tir::PrimFuncObj>(*func.get());
  copy->params.Set(static_cast<int64_t>(param), weight);
  copy->body = tir::SeqStmt::Flatten(allocs);
  return PackedOperand{ir::NodeRef<PrimFunc>(std::move(copy)),
                       TransformWeights(*c, form, plain, shape), shape, form.Transformed()};
}

FewTiles WhenFewTiles(const WinogradForm& form, const Stage& output, const Machine& machine) {
  const int64_t lanes = machine.Lanes(4);
  const auto depth = static_cast<double>(form.channels),
             in = static_cast<double>((form.channels + lanes - 1) / lanes),
             out = static_cast<double>((form.filters + lanes - 1) / lanes);
  const double of_point = static_cast<double>(form.groups * form.channels * form.PanelsOfGroup() *
                                              form.width * 4),
               from_memory = kBytesFromMemory * ShareOfMemory(machine);
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

int64_t WinogradForm::Stride(const Machine& machine) const {
  const int64_t lanes = machine.Lanes(SizeInBytes(Transformed()));
  return (channels + lanes - 1) / lanes * lanes;
}

// Among the points of 4x4: the first three, and the last one.
Expr WinogradForm::PlaceOfPoint(const Expr& point) const {
  if (!of_larger) return point;
  auto along = [&](const Expr& at) {
    return at + ir::FloorDiv(at, Size() - 1) * Expr(kWinogradSize - Size());
  };
  return along(ir::FloorDiv(point, Size())) * Expr(kWinogradSize) +
         along(ir::FloorMod(point, Size()));
}

WinogradForm WinogradForm::WithSmallTiles() const {
  WinogradForm small = *this;
  small.tile = 2;
  small.of_larger = true;
  return small;
}

int64_t WinogradForm::NearTiles(const Machine& machine) const {
  const int64_t bytes = Points() * SizeInBytes(Transformed()) * Stride(machine);
  return std::clamp<int64_t>(machine.l2_bytes * 5 / 8 / bytes, 6,
                             tile == 2 ? kMostSmallTiles : kMostTiles);
}

int64_t WinogradForm::MostTiles(const Machine& machine) const {
  const int64_t near = NearTiles(machine), of_element = Points() * SizeInBytes(Transformed());
  if (of_bytes || of_element * channels * PanelsOfGroup() * width <= 2 * machine.l2_bytes)
    return near;
  const int64_t bytes = of_element * Stride(machine);
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
  const double of_panel = static_cast<double>(form.Points() * form.width * form.Pair() *
                                              SizeInBytes(form.Transformed())) *
                          depth;
  const double all = of_panel * static_cast<double>(panels * form.groups);
  const double rate =
      FitsCache(all, machine) ? kBytesFromCache : kBytesFromMemory * ShareOfMemory(machine);
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

Expr WinogradForm::TilesOf(const Expr& size) const {
  const Expr tiles = ir::CeilDiv(size, tile * dilation);
  return dilation == 1 ? tiles : tiles * Expr(dilation);
}

Expr WinogradForm::PlaceOf(const Expr& at) const {
  if (dilation == 1) return at * Expr(tile);
  return ir::FloorDiv(at, dilation) * Expr(tile * dilation) + ir::FloorMod(at, dilation);
}

std::optional<WinogradForm> ReadWinograd(const Program& program, size_t at) {
  if (at + 3 > program.stages.size()) return std::nullopt;
  const Stage &input = program.stages[at], &product = program.stages[at + 1],
              &output = program.stages[at + 2];
  for (const Stage* s : {&input, &product, &output}) {
    if (s->IsOpaque() || s->combine != Combine::kSum || s->finish.defined()) return std::nullopt;
    for (size_t d = 0; d < s->spatial.size(); ++d) {
      if (d >= s->indices.size() || !s->indices[static_cast<int64_t>(d)].same_as(s->spatial[d].var))
        return std::nullopt;
    }
  }
  if (input.name != "winograd_input" || product.name != "winograd_product" ||
      output.name != "winograd_output" || input.reduce.size() != 2 || output.reduce.size() != 2)
    return std::nullopt;
  const size_t rank = output.spatial.size();
  if (rank < 4 || rank > 5 || input.spatial.size() != rank + 2 ||
      product.spatial.size() != rank + 2 || product.reduce.size() != rank - 3)
    return std::nullopt;
  const std::vector<Var> data = ReadsOf(input), weights = ReadsOf(product);
  if (data.size() != 1 || weights.size() != 2) return std::nullopt;
  const Buffer source(data[0]), weight(weights[weights[0].same_as(*input.out) ? 1 : 0]);
  const bool of_bytes = weight.elem_dtype() == Int(16);
  if (weight.shape().size() != (of_bytes ? 5U : 4U) || source.shape().size() != rank)
    return std::nullopt;
  const auto form = CandidateOf(input, product, output, source, weight);
  if (!form.has_value()) return std::nullopt;
  auto vars = [](const std::vector<Axis>& axes) {
    Indices all;
    for (const Axis& axis : axes) all.push_back(axis.var);
    return all;
  };
  const bool same =
      ir::StructuralEqual(WinogradInput(*form, LoadsOf(source), source.shape(), vars(input.spatial),
                                        vars(input.reduce)),
                          input.value) &&
      ir::StructuralEqual(WinogradProduct(*form, LoadsOf(*input.out), LoadsOf(weight),
                                          vars(product.spatial), vars(product.reduce)),
                          product.value) &&
      ir::StructuralEqual(
          WinogradOutput(*form, LoadsOf(*product.out), vars(output.spatial), vars(output.reduce)),
          output.value);
  return same ? form : std::nullopt;
}

}  // namespace relaxvm::schedule::cpu
