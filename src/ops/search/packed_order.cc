// SPDX-License-Identifier: Apache-2.0
#include "ops/search/packed_order.h"

namespace relaxvm::ops {
namespace {

constexpr int64_t kLanes = 16;
constexpr int kDigits = 4, kBuckets = 256;  // a rank's bytes
constexpr int64_t kFewElements = 64;        // for them, counting bytes costs more than merging

Indices At(const Expr& index) { return {index}; }

// Comes before another element when this is less: NaN last (descending: first), -0 as 0.
Expr RankOf(const Expr& element, bool descending) {
  Expr e = Widen(element);
  Expr rank;
  if (IsFloat(e.dtype())) {
    e = ir::Select(ir::Equal(e, Number(e.dtype(), 0)), Number(e.dtype(), 0), e);
    Expr bits = ir::CallIntrin(Int(32), Intrin::kReinterpret, {e});
    bits = ir::Select(ir::CallIntrin(Intrin::kIsNan, {e}), ir::MaxValue(Int(32)), bits);
    // Of negative numbers the greater magnitude is the lesser one.
    Expr flipped = ir::Make(ir::BinaryOp::kBitXor, bits, ir::MaxValue(Int(32)));
    rank = ir::Select(ir::Less(bits, ir::Const(Int(32), 0)), flipped, bits);
  } else if (e.dtype().code == kDLUInt && e.dtype().bits == 32) {
    Expr bits = ir::CallIntrin(Int(32), Intrin::kReinterpret, {e});
    rank = ir::Make(ir::BinaryOp::kBitXor, bits, ir::MinValue(Int(32)));
  } else {
    rank = ir::Cast(Int(32), e);
  }
  return descending ? ir::CallIntrin(Intrin::kBitNot, {rank}) : rank;
}

Expr Pack(const Expr& rank, const Expr& index) {
  Expr high = ir::Make(ir::BinaryOp::kShiftLeft, ir::Cast(Int(64), rank), ir::Const(Int(64), 32));
  return ir::Make(ir::BinaryOp::kBitOr, high, index);
}

// body(index) for [0, n), by vectors as far as they go.
Stmt Vectors(const Expr& n, const std::function<Stmt(const Expr&)>& body) {
  ir::Var block("block", Int(64)), lane("lane", Int(64)), rest("rest", Int(64));
  const Expr blocks = ir::FloorDiv(n, Expr(kLanes));
  Stmt vector = tir::For(lane, Expr(0), Expr(kLanes), tir::ForKind::kVectorized,
                         body(block * Expr(kLanes) + lane));
  return Sequence({tir::For(block, Expr(0), blocks, tir::ForKind::kSerial, vector),
                   tir::For(rest, blocks * Expr(kLanes), n - blocks * Expr(kLanes),
                            tir::ForKind::kSerial, body(rest))});
}

// Runs of `width` in `from` become runs of twice that in `to`.
Stmt MergeRuns(const Buffer& from, const Buffer& to, const Expr& n, const Cell& width,
               const Cell& start) {
  Cell left("left", Int(64));
  ir::Var first("first", Int(64)), middle("middle", Int(64)), stop("stop", Int(64)),
      done("done", Int(64)), take_left("take_left", Bool()), a("a", Int(64)), b("b", Int(64));
  const Expr last = n - Expr(1);
  const Expr right = middle + done - (left.Get() - first);
  const Expr exhausted = ir::GreaterEqual(right, stop);
  const Expr chosen = ir::Or(exhausted, ir::And(ir::Less(left.Get(), middle), ir::LessEqual(a, b)));
  // Both sides are read even where one has run out: everything is a selection, nothing a branch.
  Stmt step =
      Sequence({tir::Bind(a, from.Load(At(ir::Min(left.Get(), last)))),
                tir::Bind(b, from.Load(At(ir::Min(right, last)))), tir::Bind(take_left, chosen),
                tir::BufferStore(to, ir::Select(take_left, a, b), At(first + done)),
                left.Set(left.Get() + ir::Cast(Int(64), take_left))});
  Stmt merge =
      Sequence({left.Alloc(), tir::Bind(first, start.Get()),
                tir::Bind(middle, ir::Min(start.Get() + width.Get(), n)),
                tir::Bind(stop, ir::Min(start.Get() + width.Get() * Expr(2), n)), left.Set(first),
                tir::For(done, Expr(0), Expr(stop) - Expr(first), tir::ForKind::kSerial, step),
                start.Set(stop)});
  return Sequence({start.Set(Expr(0)), tir::While(ir::Less(start.Get(), n), merge)});
}

// There and back, so that the result is where it was.
Stmt SortRuns(const Expr& n, const Buffer& packed, const Buffer& spare) {
  Cell width("width", Int(64)), start("start", Int(64));
  Stmt twice = width.Set(width.Get() * Expr(2));
  Stmt passes = tir::While(ir::Less(width.Get(), n),
                           Sequence({MergeRuns(packed, spare, n, width, start), twice,
                                     MergeRuns(spare, packed, n, width, start), twice}));
  return Sequence({width.Alloc(), start.Alloc(), width.Set(Expr(1)), passes});
}

// The byte of a rank that pass `digit` sorts by, from the last one on; the sign's bit is turned, so
// that negative ranks come first.
Expr DigitOf(const Expr& packed, int digit) {
  Expr shifted = ir::Make(ir::BinaryOp::kShiftRight, packed, ir::Const(Int(64), 32 + 8 * digit));
  Expr byte = ir::Make(ir::BinaryOp::kBitAnd, shifted, ir::Const(Int(64), 255));
  if (digit == kDigits - 1) byte = ir::Make(ir::BinaryOp::kBitXor, byte, ir::Const(Int(64), 128));
  return Expr(digit * kBuckets) + byte;
}

// Byte by byte: each pass puts the elements behind those of lesser bytes, in the order they came.
Stmt SortByDigits(const Expr& n, const Buffer& packed, const Buffer& spare) {
  Buffer places("places", {Expr(kDigits * kBuckets)}, Int(32), "local");
  Cell sum("sum", Int(32));
  ffi::Array<Stmt> seq = {tir::AllocBuffer(places), sum.Alloc(),
                          LoopNest({Expr(kDigits * kBuckets)}, [&](const Indices& i) {
                            return tir::BufferStore(places, ir::Const(Int(32), 0), i);
                          })};
  seq.push_back(LoopNest({n}, [&](const Indices& i) {
    ir::Var element("element", Int(64));
    ffi::Array<Stmt> count = {tir::Bind(element, packed.Load(i))};
    for (int digit = 0; digit < kDigits; ++digit) {
      const Indices at = At(DigitOf(element, digit));
      count.push_back(tir::BufferStore(places, places.Load(at) + ir::Const(Int(32), 1), at));
    }
    return Sequence(count);
  }));
  for (int digit = 0; digit < kDigits; ++digit) {
    seq.push_back(sum.Set(ir::Const(Int(32), 0)));
    seq.push_back(LoopNest({Expr(kBuckets)}, [&](const Indices& i) {
      ir::Var count("count", Int(32));
      const Indices at = At(Expr(digit * kBuckets) + i[0]);
      return Sequence({tir::Bind(count, places.Load(at)), tir::BufferStore(places, sum.Get(), at),
                       sum.Set(sum.Get() + count)});
    }));
    const Buffer &from = digit % 2 == 0 ? packed : spare, &to = digit % 2 == 0 ? spare : packed;
    seq.push_back(LoopNest({n}, [&](const Indices& i) {
      ir::Var element("element", Int(64)), place("place", Int(32));
      const Indices at = At(DigitOf(element, digit));
      return Sequence({tir::Bind(element, from.Load(i)), tir::Bind(place, places.Load(at)),
                       tir::BufferStore(to, element, At(ir::Cast(Int(64), place))),
                       tir::BufferStore(places, Expr(place) + ir::Const(Int(32), 1), at)});
    }));
  }
  return Sequence(seq);
}

// In place.
Stmt SortElements(const Expr& n, const Buffer& packed, const Buffer& spare) {
  if (auto known = ir::AsInt(n); known.has_value())
    return *known <= kFewElements ? SortRuns(n, packed, spare) : SortByDigits(n, packed, spare);
  return tir::IfThenElse(ir::LessEqual(n, Expr(kFewElements)), SortRuns(n, packed, spare),
                         SortByDigits(n, packed, spare));
}

// How many of ranks[0 .. n) are less than `bound`, into `count`.
Stmt CountLess(const Buffer& ranks, const Expr& n, const Expr& bound, const Cell& count) {
  Buffer counts("counts", {Expr(kLanes)}, Int(32), "local");
  ir::Var block("block", Int(64)), lane("lane", Int(64)), zero("zero", Int(64)),
      rest("rest", Int(64));
  const Expr blocks = ir::FloorDiv(n, Expr(kLanes));
  auto is_less = [&](DLDataType dtype, const Expr& index) {
    return ir::Select(ir::Less(ranks.Load(At(index)), bound), ir::Const(dtype, 1),
                      ir::Const(dtype, 0));
  };
  auto vectors = [&](const ir::Var& var, Stmt body) {
    return tir::For(var, Expr(0), Expr(kLanes), tir::ForKind::kVectorized, std::move(body));
  };
  Stmt add = tir::BufferStore(
      counts, counts.Load(At(lane)) + is_less(Int(32), block * Expr(kLanes) + lane), At(lane));
  Expr all =
      ir::CallIntrin(Intrin::kReduceAdd, {counts.Load(At(ir::RampExpr(Expr(0), Expr(1), kLanes)))});
  return Sequence(
      {tir::AllocBuffer(counts),
       vectors(zero, tir::BufferStore(counts, ir::Const(Int(32), 0), At(zero))),
       tir::For(block, Expr(0), blocks, tir::ForKind::kSerial, vectors(lane, add)),
       count.Set(ir::Cast(Int(64), all)),
       tir::For(rest, blocks * Expr(kLanes), n - blocks * Expr(kLanes), tir::ForKind::kSerial,
                count.Set(count.Get() + is_less(Int(64), rest)))});
}

}  // namespace

bool CanPack(DLDataType dtype) {
  return (IsFloat(dtype) || IsInteger(dtype)) && WideDtype(dtype).bits <= 32;
}

Expr IndexOf(const Expr& packed) {
  return ir::Make(ir::BinaryOp::kBitAnd, packed, ir::Const(Int(64), 0xffffffff));
}

Stmt SortPacked(const LineValue& value, const Expr& n, const Buffer& packed, const Buffer& spare,
                bool descending) {
  Stmt fill = Vectors(n, [&](const Expr& i) {
    return tir::BufferStore(packed, Pack(RankOf(value(i), descending), i), At(i));
  });
  return Sequence({fill, SortElements(n, packed, spare)});
}

Stmt SelectPacked(const LineValue& value, const Expr& n, const Expr& keep, const Buffer& packed,
                  const Buffer& spare, bool descending) {
  Buffer ranks("ranks", {n}, Int(32));
  Stmt fill = Vectors(n, [&](const Expr& i) {
    return tir::BufferStore(ranks, RankOf(value(i), descending), At(i));
  });
  // The greatest rank that fewer than `keep` elements are below is that of the last one kept.  A
  // rank that just `keep` are below ends the search: they are all kept.
  Cell last("last", Int(32)), count("count", Int(64)), ties("ties", Int(64)), bit("bit", Int(32));
  ir::Var candidate("candidate", Int(32));
  const Expr one = ir::Const(Int(32), 1);
  const Expr higher = last.Get() + ir::Make(ir::BinaryOp::kShiftLeft, one, bit.Get());
  Stmt narrow = tir::While(
      ir::GreaterEqual(bit.Get(), ir::Const(Int(32), 0)),
      Sequence({tir::Bind(candidate, higher), CountLess(ranks, n, candidate, count),
                last.Set(ir::Select(ir::LessEqual(count.Get(), keep), candidate, last.Get())),
                bit.Set(ir::Select(ir::Equal(count.Get(), keep), ir::Const(Int(32), -1),
                                   bit.Get() - one))}));
  // Those below it, and of its equals the first ones.
  auto push = [&](const Expr& i) {
    ir::Var rank("rank", Int(32)), tie("tie", Bool()), taken("taken", Bool());
    return Sequence(
        {tir::Bind(rank, ranks.Load(At(i))),
         tir::Bind(tie, ir::And(ir::Equal(rank, last.Get()), ir::Greater(ties.Get(), Expr(0)))),
         tir::Bind(taken, ir::Or(ir::Less(rank, last.Get()), tie)),
         tir::BufferStore(packed, Pack(rank, i), At(count.Get())),
         count.Set(count.Get() + ir::Cast(Int(64), taken)),
         ties.Set(ties.Get() - ir::Cast(Int(64), tie))});
  };
  // Most vectors have none of them.
  ir::Var block("block", Int(64)), inside("inside", Int(64)), rest("rest", Int(64));
  const Expr blocks = ir::FloorDiv(n, Expr(kLanes)), from = block * Expr(kLanes);
  const Expr least =
      ir::CallIntrin(Intrin::kReduceMin, {ranks.Load(At(ir::RampExpr(from, Expr(1), kLanes)))});
  Stmt some = tir::For(inside, Expr(0), Expr(kLanes), tir::ForKind::kSerial, push(from + inside));
  Stmt collect = Sequence({tir::For(block, Expr(0), blocks, tir::ForKind::kSerial,
                                    tir::IfThenElse(ir::LessEqual(least, last.Get()), some)),
                           tir::For(rest, blocks * Expr(kLanes), n - blocks * Expr(kLanes),
                                    tir::ForKind::kSerial, push(rest))});
  return Sequence({tir::AllocBuffer(ranks), last.Alloc(), count.Alloc(), ties.Alloc(), bit.Alloc(),
                   fill, last.Set(ir::MinValue(Int(32))), bit.Set(ir::Const(Int(32), 31)), narrow,
                   CountLess(ranks, n, last.Get(), count), ties.Set(keep - count.Get()),
                   count.Set(Expr(0)), collect, SortElements(ir::Min(keep, n), packed, spare)});
}

}  // namespace relaxvm::ops
