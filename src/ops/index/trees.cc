// SPDX-License-Identifier: Apache-2.0
// rvm.tree_sums: what ensembles of decision trees make of rows of features.
//
// A step is the same for every node, so several rows, or several trees of one row, go down side by
// side: a step's latency (a node, a feature, a comparison) is hidden by the others' steps, and no
// branch depends on the data but the one that ends the loop.  A node that a row cannot leave, a
// leaf, has itself as child and NaN as split: no comparison with it holds.
#include "ops/loops.h"

namespace relaxvm::ops {
namespace {

constexpr int64_t kSideBySide = 8;  // ways down at once: about the latency of a step by its work
constexpr int64_t kBlock = 32;      // rows that read a tree while it is in the first cache
constexpr int64_t kWorthAThread = 1024;  // ways down, of some 20 cycles each

struct TreeSums {
  int64_t columns = 1;
  std::string compare = "<=";
  std::string combine = "sum";
  bool missing = false;
  int64_t groups = 1;
};

constexpr size_t kX = 0, kSplits = 1, kLinks = 2, kRoots = 3, kWeights = 4;

std::optional<ir::BinaryOp> Comparison(const std::string& name) {
  if (name == "<=") return ir::BinaryOp::kLE;
  if (name == "<") return ir::BinaryOp::kLT;
  if (name == ">=") return ir::BinaryOp::kGE;
  if (name == ">") return ir::BinaryOp::kGT;
  if (name == "==") return ir::BinaryOp::kEQ;
  return std::nullopt;
}

bool IsNumber(DLDataType t) { return t == Float(32) || t == Float(64); }

Type InferTreeSums(TypeCtx& ctx, const TreeSums& a) {
  TensorType x = ctx.TensorOf(kX, IsNumber, "a tensor of float32 or float64");
  for (size_t i : {kSplits, kWeights}) ctx.SameDtype(kX, i);
  auto is_index = [](DLDataType t) { return t == Int(32); };
  for (size_t i : {kLinks, kRoots}) ctx.TensorOf(i, is_index, "a tensor of int32");
  for (size_t i : {kX, kLinks, kRoots, kWeights}) ctx.CheckRank(i, 2);
  ctx.CheckRank(kSplits, 1);
  if (!Comparison(a.compare)) {
    ctx.Error(ErrorKind::kValueError, "compare must be '<=', '<', '>=', '>' or '==', got '",
              a.compare, "'");
  }
  if (a.combine != "sum" && a.combine != "min" && a.combine != "max") {
    ctx.Error(ErrorKind::kValueError, "combine must be 'sum', 'min' or 'max', got '", a.combine,
              "'");
  }
  if (a.groups < 1 || a.columns < 1) {
    ctx.Error(ErrorKind::kValueError, "groups and columns must be at least 1, got ", a.groups,
              " and ", a.columns);
  }
  auto nodes = ctx.Tensor(kSplits)->GetShape(), links = ctx.Tensor(kLinks)->GetShape();
  auto roots = ctx.Tensor(kRoots)->GetShape(), weights = ctx.Tensor(kWeights)->GetShape();
  auto must = [&](const Expr& left, const Expr& right, size_t i, const char* what) {
    if (ctx.Prove(ir::NotEqual(left, right)))
      ctx.Error(ErrorKind::kValueError, ctx.Describe(i), " must have ", what);
  };
  if (links) must((*links)[1], Expr(2), kLinks, "two columns");
  if (roots) must((*roots)[1], Expr(3), kRoots, "three columns");
  if (nodes && links) must((*links)[0], (*nodes)[0], kLinks, "one row for each split");
  if (nodes && weights) must((*weights)[0], (*nodes)[0], kWeights, "one row for each split");
  auto shape = x->GetShape();
  if (!shape) return ctx.Result(std::nullopt, 3, x->dtype);
  return ctx.Result(Dims{Expr(a.groups), (*shape)[0], Expr(a.columns)}, x->dtype);
}

class TreeLoop {
 public:
  TreeLoop(const TreeSums& a, const std::vector<Buffer>& inputs, const Buffer& out)
      : attrs_(a),
        in_(inputs),
        out_(out),
        rows_(inputs[kX].shape()[0]),
        features_(inputs[kX].shape()[1]),
        trees_(inputs[kRoots].shape()[0]) {}

  // Tasks are (block of rows, group of trees).
  Stmt Run() {
    ir::Var task("task", Int(64)), block("block", Int(64)), group("group", Int(64));
    ir::Var first("first", Int(64)), last("last", Int(64)), tile("tiled", Int(64));
    ir::Var begin("begin", Int(64)), end("end", Int(64));
    group_ = group;
    const Expr groups(attrs_.groups), blocks = ir::FloorDiv(rows_ + Expr(kBlock - 1), Expr(kBlock));
    Expr tiled = ir::FloorDiv(last - first, Expr(kSideBySide)) * Expr(kSideBySide);
    Stmt body = Sequence(
        {tir::Bind(block, ir::FloorDiv(task, groups)), tir::Bind(group, ir::FloorMod(task, groups)),
         tir::Bind(first, block * Expr(kBlock)),
         tir::Bind(last, ir::Min(first + Expr(kBlock), rows_)), tir::Bind(tile, first + tiled),
         tir::Bind(begin, ir::FloorDiv(trees_ * group, groups)),
         tir::Bind(end, ir::FloorDiv(trees_ * (group + Expr(1)), groups)), Start(first, last),
         ManyRows(first, tile, begin, end), OneByOne(tile, last, begin, end)});
    ir::DictAttrs annotations;
    annotations.Set("most_threads", ir::FloorDiv(rows_ * trees_, Expr(kWorthAThread)));
    return tir::For(task, Expr(0), blocks * groups, tir::ForKind::kParallel, body, "", annotations);
  }

 private:
  struct Way {
    Expr row, tree;
  };

  // for var in [begin, end): body(var)
  static Stmt Each(const char* name, const Expr& begin, const Expr& end, const Expr& step,
                   const std::function<Stmt(const Expr&)>& body) {
    ir::Var at(name, Int(64));
    Expr count = ir::FloorDiv(end - begin, step);
    return tir::For(at, Expr(0), count, tir::ForKind::kSerial, body(begin + Expr(at) * step));
  }

  Stmt Start(const Expr& first, const Expr& last) {
    const double inf = std::numeric_limits<double>::infinity();
    double value = attrs_.combine == "sum" ? 0 : attrs_.combine == "min" ? inf : -inf;
    return Each("row", first, last, Expr(1), [&](const Expr& row) {
      return LoopNest({Expr(attrs_.columns)}, [&](const Indices& c) {
        return tir::BufferStore(out_, Number(out_.elem_dtype(), value), {group_, row, c[0]});
      });
    });
  }

  // Each tree for tiles of rows.
  Stmt ManyRows(const Expr& first, const Expr& last, const Expr& begin, const Expr& end) {
    return Each("tree", begin, end, Expr(1), [&](const Expr& tree) {
      return Each("tile", first, last, Expr(kSideBySide), [&](const Expr& row) {
        std::vector<Way> ways;
        for (int64_t i = 0; i < kSideBySide; ++i) ways.push_back({row + Expr(i), tree});
        return Down(ways, {tree});
      });
    });
  }

  // Rows that fill no tile: several trees at once.
  Stmt OneByOne(const Expr& first, const Expr& last, const Expr& begin, const Expr& end) {
    return Each("row", first, last, Expr(1), [&](const Expr& row) {
      Expr full = ir::FloorDiv(end - begin, Expr(kSideBySide)) * Expr(kSideBySide);
      Stmt many = Each("tree", begin, begin + full, Expr(kSideBySide), [&](const Expr& tree) {
        std::vector<Way> ways;
        std::vector<Expr> trees;
        for (int64_t i = 0; i < kSideBySide; ++i) {
          trees.push_back(tree + Expr(i));
          ways.push_back({row, trees.back()});
        }
        return Down(ways, trees);
      });
      Stmt rest = Each("tree", begin + full, end, Expr(1),
                       [&](const Expr& tree) { return Down({{row, tree}}, {tree}); });
      return Sequence({many, rest});
    });
  }

  // All ways from their roots to their leaves, whose weights are added in the order of the ways.
  Stmt Down(const std::vector<Way>& ways, const std::vector<Expr>& trees) {
    Cell left("left", Int(32)), moved("moved", Int(32));
    std::vector<Cell> at;
    ffi::Array<Stmt> all{left.Alloc(), moved.Alloc()};
    for (const Way& way : ways) {
      at.emplace_back("at", Int(32));
      all.push_back(at.back().Alloc());
      all.push_back(at.back().Set(in_[kRoots].Load({way.tree, Expr(0)})));
    }
    Expr pairs = in_[kRoots].Load({trees[0], Expr(1)});
    for (size_t i = 1; i < trees.size(); ++i)
      pairs = ir::Max(pairs, in_[kRoots].Load({trees[i], Expr(1)}));
    all.push_back(left.Set(pairs));
    all.push_back(moved.Set(ir::Const(Int(32), 1)));
    const Expr zero = ir::Const(Int(32), 0);
    ffi::Array<Stmt> steps;
    for (size_t i = 0; i < ways.size(); ++i) Step(at[i], ways[i].row, zero, &steps);
    Expr any = zero;
    for (size_t i = 0; i < ways.size(); ++i) any = Step(at[i], ways[i].row, any, &steps);
    steps.push_back(moved.Set(any));
    steps.push_back(left.Set(left.Get() - ir::Const(Int(32), 1)));
    Expr on = ir::And(ir::Greater(left.Get(), zero), ir::NotEqual(moved.Get(), zero));
    all.push_back(tir::While(on, Sequence(steps)));
    for (size_t i = 0; i < ways.size(); ++i) all.push_back(Add(ways[i], at[i].Get()));
    return Sequence(all);
  }

  // Returns `any` with the bits in which the new node's number differs from the old one's.
  Expr Step(const Cell& at, const Expr& row, const Expr& any, ffi::Array<Stmt>* out) {
    ir::Var node("node", Int(32)), question("question", Int(32)), next("next", Int(32));
    ir::Var value("value", out_.elem_dtype());
    const Expr one = ir::Const(Int(32), 1);
    Expr feature = ir::Cast(Int(64), ir::Binary(ir::BinaryOp::kShiftRight, question, one));
    // Importers check features where they know how many there are.
    if (!ir::AsInt(features_).has_value()) feature = ir::Min(feature, features_ - Expr(1));
    Expr wide = ir::Cast(Int(64), node);
    Expr yes = ir::Binary(*Comparison(attrs_.compare), value, in_[kSplits].Load({wide}));
    if (attrs_.missing) {
      Expr tracks =
          ir::NotEqual(ir::Binary(ir::BinaryOp::kBitAnd, question, one), ir::Const(Int(32), 0));
      yes = ir::Or(yes, ir::And(tracks, ir::CallIntrin(Intrin::kIsNan, {value})));
    }
    out->push_back(tir::Bind(node, at.Get()));
    out->push_back(tir::Bind(question, in_[kLinks].Load({wide, Expr(0)})));
    out->push_back(tir::Bind(value, in_[kX].Load({row, feature})));
    out->push_back(tir::Bind(
        next, in_[kLinks].Load({wide, Expr(1)}) + ir::Select(yes, one, ir::Const(Int(32), 0))));
    out->push_back(at.Set(next));
    ir::Var bits("bits", Int(32));
    out->push_back(
        tir::Bind(bits, ir::Binary(ir::BinaryOp::kBitOr, any,
                                   ir::Binary(ir::BinaryOp::kBitXor, Expr(next), Expr(node)))));
    return bits;
  }

  Stmt Add(const Way& way, const Expr& leaf) {
    const Buffer& weights = in_[kWeights];
    ir::Var node("leaf", Int(64)), column("column", Int(64));
    Stmt add = LoopNest({weights.shape()[1]}, [&](const Indices& c) {
      Indices at{group_, way.row, Expr(column) + c[0]};
      Expr sum = out_.Load(at), weight = weights.Load({node, c[0]});
      if (attrs_.combine == "min") return tir::BufferStore(out_, ir::Min(sum, weight), at);
      if (attrs_.combine == "max") return tir::BufferStore(out_, ir::Max(sum, weight), at);
      return tir::BufferStore(out_, sum + weight, at);
    });
    Expr start = ir::Cast(Int(64), in_[kRoots].Load({way.tree, Expr(2)}));
    return Sequence({tir::Bind(node, ir::Cast(Int(64), leaf)), tir::Bind(column, start), add});
  }

  const TreeSums& attrs_;
  const std::vector<Buffer>& in_;
  Buffer out_;
  Expr rows_, features_, trees_, group_;
};

Tensors ComputeTreeSums(const ComputeArgs& in, const TreeSums& a) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < in.tensors.size(); ++i) inputs.push_back(in[i]);
  auto body = [a](const std::vector<Buffer>& ins, const std::vector<Buffer>& outs) {
    return TreeLoop(a, ins, outs[0]).Run();
  };
  return tir::Opaque({{"tree_sums", in.OutShape(), in.OutDtype()}}, inputs, body, "tree_sums");
}

}  // namespace

OpDef rvm_tree_sums() {
  return Define<TreeSums>({
      .name = "rvm.tree_sums",
      .doc = "The weights of the leaves that rows of features reach in decision trees, added up "
             "over the trees of each group.",
      .args = {{"x", "[rows, features], float32 or float64."},
               {"splits", "[nodes]: what a node compares its feature with; NaN at a leaf."},
               {"links",
                "[nodes, 2] of int32: 2 * feature, plus 1 where NaN counts as yes; the node that "
                "follows no, before the one that follows yes (at a leaf: itself).  Not checked."},
               {"roots",
                "[trees, 3] of int32: the first node, at most how many pairs of steps lead to a "
                "leaf, the first column of its weights.  Not checked."},
               {"weights", "[nodes, width]: what a leaf adds to columns of the result."}},
      .attrs = {{"columns", &TreeSums::columns, "Columns of the result."},
                {"compare", &TreeSums::compare, "'<=', '<', '>=', '>' or '=='."},
                {"combine", &TreeSums::combine, "'sum', 'min' or 'max'."},
                {"missing", &TreeSums::missing, "There are nodes where NaN counts as yes."},
                {"groups", &TreeSums::groups,
                 "Parts of about the same number of trees, which threads may take apart."}},
      .reference =
          "out = tree_sums(x, splits, links, roots, weights, columns, compare, combine, missing, "
          "groups)",
      .samples = {{{"x: f32[43, 5]", "splits: f32[9]", "links: i32[9, =2] in 0..7",
                    "roots: i32[10, =3] in 2..2", "weights: f32[9, =2]", "columns=4"}},
                  {{"x: f32[5, 4]", "splits: f32[9]", "links: i32[9, =2] in 0..7",
                    "roots: i32[19, =3] in 2..2", "weights: f32[9, =1]", "columns=3", "compare='<'",
                    "missing=True", "groups=3"}},
                  {{"x: f32[9, 4]", "splits: f32[9]", "links: i32[9, =2] in 0..7",
                    "roots: i32[3, =3] in 2..2", "weights: f32[9, =1]", "columns=3", "compare='>='",
                    "combine='max'"}},
                  {{"x: f32[9, 4]", "splits: f32[9]", "links: i32[9, =2] in 0..7",
                    "roots: i32[3, =3] in 2..2", "weights: f32[9, =1]", "columns=3", "compare='>'",
                    "combine='min'"}},
                  {{"x: f32[8, 4]", "splits: f32[9]", "links: i32[9, =2] in 0..7",
                    "roots: i32[9, =3] in 2..2", "weights: f32[9, =1]", "columns=3",
                    "compare='=='"}}},
      .type = InferTreeSums,
      .compute = ComputeTreeSums,
  });
}

}  // namespace relaxvm::ops
