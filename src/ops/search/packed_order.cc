// SPDX-License-Identifier: Apache-2.0
#include "ops/search/packed_order.h"

namespace relaxvm::ops {
namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kWideLanes = 8;           // of 64 bits
constexpr int64_t kFewElements = 64;        // up to here they are all compared with each other
constexpr int kDigits = 4, kBuckets = 256;  // a rank's bytes

Indices At(const Expr& index) { return {index}; }

// Comes before another element when this is less: NaN last (descending: first), -0 as 0.  int64 for
// elements of 64 bits, int32 for others.
Expr RankOf(const Expr& element, bool descending) {
  Expr e = Widen(element);
  const DLDataType dtype = e.dtype().bits == 64 ? Int(64) : Int(32);
  Expr rank;
  if (IsFloat(e.dtype())) {
    e = ir::Select(ir::Equal(e, Number(e.dtype(), 0)), Number(e.dtype(), 0), e);
    Expr bits = ir::CallIntrin(dtype, Intrin::kReinterpret, {e});
    bits = ir::Select(ir::CallIntrin(Intrin::kIsNan, {e}), ir::MaxValue(dtype), bits);
    // Of negative numbers the greater magnitude is the lesser one.
    Expr flipped = ir::Make(ir::BinaryOp::kBitXor, bits, ir::MaxValue(dtype));
    rank = ir::Select(ir::Less(bits, ir::Const(dtype, 0)), flipped, bits);
  } else if (e.dtype().code == kDLUInt && e.dtype().bits == dtype.bits) {
    Expr bits = ir::CallIntrin(dtype, Intrin::kReinterpret, {e});
    rank = ir::Make(ir::BinaryOp::kBitXor, bits, ir::MinValue(dtype));
  } else {
    rank = ir::Cast(dtype, e);
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

// body(lane) for a vector of 64-bit numbers.
Stmt Lanes(const std::function<Stmt(const Expr&)>& body) {
  ir::Var lane("lane", Int(64));
  return tir::For(lane, Expr(0), Expr(kWideLanes), tir::ForKind::kVectorized, body(lane));
}

// Up to kFewElements: each of key(0 .. n) goes to its place, place(index, number of elements before
// it).  All are compared with all, by vectors; equal ones, where there may be some, keep their
// order.
Stmt PlaceFew(const Expr& n, const LineValue& key, bool may_equal,
              const std::function<Stmt(const Expr&, const Expr&)>& place) {
  Buffer keys("keys", {Expr(kFewElements)}, Int(64), "local");
  Buffer before("before", {Expr(kFewElements)}, Int(64), "local");
  Buffer count("count", {Expr(kWideLanes)}, Int(64), "local");
  ir::Var block("block", Int(64));
  const Expr zero = Expr(0), one = Expr(1), lanes = Expr(kWideLanes), start = block * lanes;
  // Adds those of the others at [from, to) that come first: the lesser ones, and of equal ones
  // those that stand before.
  enum class Equals : uint8_t { kAfter, kBefore, kByIndex };
  auto add = [&](const Expr& from, const Expr& to, Equals equals) -> Stmt {
    ir::Var other("other", Int(64));
    auto compared = [&](const Expr& lane) {
      const Expr mine = keys.Load(At(start + lane)), its = keys.Load(At(other));
      const Expr ties = ir::And(ir::Equal(its, mine), ir::Less(other, start + lane));
      const Expr less = ir::Less(its, mine);
      const Expr first = equals == Equals::kAfter    ? less
                         : equals == Equals::kBefore ? ir::LessEqual(its, mine)
                                                     : ir::Or(less, ties);
      return tir::BufferStore(count, count.Load(At(lane)) + ir::Select(first, one, zero), At(lane));
    };
    return tir::For(other, from, to - from, tir::ForKind::kSerial, Lanes(compared));
  };
  const Expr stop = ir::Min(n, start + lanes);
  Stmt all = may_equal
                 ? Sequence({add(zero, start, Equals::kBefore), add(start, stop, Equals::kByIndex),
                             add(stop, n, Equals::kAfter)})
                 : add(zero, n, Equals::kAfter);
  Stmt one_block =
      Sequence({Lanes([&](const Expr& lane) { return tir::BufferStore(count, zero, At(lane)); }),
                all, Lanes([&](const Expr& lane) {
                  return tir::BufferStore(before, count.Load(At(lane)), At(start + lane));
                })});
  return Sequence({tir::AllocBuffer(keys), tir::AllocBuffer(before), tir::AllocBuffer(count),
                   Vectors(n, [&](const Expr& i) { return tir::BufferStore(keys, key(i), At(i)); }),
                   tir::For(block, zero, ir::CeilDiv(n, lanes), tir::ForKind::kSerial, one_block),
                   LoopNest({n}, [&](const Indices& i) { return place(i[0], before.Load(i)); })});
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
// Of at least one element.
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
    const Buffer &from = digit % 2 == 0 ? packed : spare, &to = digit % 2 == 0 ? spare : packed;
    const Expr all_equal =
        ir::Equal(ir::Cast(Int(64), places.Load(At(DigitOf(from.Load({Expr(0)}), digit)))), n);
    Stmt sums = Sequence(
        {sum.Set(ir::Const(Int(32), 0)), LoopNest({Expr(kBuckets)}, [&](const Indices& i) {
           ir::Var count("count", Int(32));
           const Indices at = At(Expr(digit * kBuckets) + i[0]);
           return Sequence({tir::Bind(count, places.Load(at)),
                            tir::BufferStore(places, sum.Get(), at), sum.Set(sum.Get() + count)});
         })});
    Stmt move = LoopNest({n}, [&](const Indices& i) {
      ir::Var element("element", Int(64)), place("place", Int(32));
      const Indices at = At(DigitOf(element, digit));
      return Sequence({tir::Bind(element, from.Load(i)), tir::Bind(place, places.Load(at)),
                       tir::BufferStore(to, element, At(ir::Cast(Int(64), place))),
                       tir::BufferStore(places, Expr(place) + ir::Const(Int(32), 1), at)});
    });
    Stmt stay =
        Vectors(n, [&](const Expr& i) { return tir::BufferStore(to, from.Load(At(i)), At(i)); });
    seq.push_back(tir::IfThenElse(all_equal, stay, Sequence({sums, move})));
  }
  return Sequence(seq);
}

// few or many, by the number of elements.
Stmt ByNumber(const Expr& n, const std::function<Stmt()>& few, const std::function<Stmt()>& many) {
  if (auto known = ir::AsInt(n); known.has_value()) return *known <= kFewElements ? few() : many();
  return tir::IfThenElse(ir::LessEqual(n, Expr(kFewElements)), few(), many());
}

// In place.
Stmt SortElements(const Expr& n, const Buffer& packed, const Buffer& spare) {
  auto few = [&]() -> Stmt {
    auto place = [&](const Expr& i, const Expr& before) -> Stmt {
      return tir::BufferStore(spare, packed.Load(At(i)), At(before));
    };
    return Sequence(
        {PlaceFew(
             n, [&](const Expr& i) -> Expr { return packed.Load(At(i)); }, false, place),
         LoopNest({n},
                  [&](const Indices& i) { return tir::BufferStore(packed, spare.Load(i), i); })});
  };
  return ByNumber(n, few, [&] { return SortByDigits(n, packed, spare); });
}

// Ranks of 64 bits as words, each of which orders like an integer with a sign.
class WideRanks {
 public:
  WideRanks(LineValue rank, Expr n) : rank_(std::move(rank)), n_(std::move(n)) {}

  // Whether all words but the lowest are equal, once the least rank is subtracted.
  Expr IsNarrow() const { return narrow_; }

  // The word `number` (0: the lowest) of the element at `at`, as int32.
  Expr Word(const Expr& at, const Expr& number) const {
    // Words have no sign, ranks have.
    const Expr whole = ir::Select(narrow_, rank_(at) - low_, Flipped(rank_(at)));
    return Flipped(
        ir::Cast(Int(32), ir::Make(ir::BinaryOp::kShiftRight, whole, number * Expr(32))));
  }

  // Looks for the least and the greatest rank, of a line of at least kWideLanes elements: comes
  // before the others, in their scope.
  ffi::Array<Stmt> Find() const {
    const DLDataType dtype = Int(64);
    Buffer least("least", {Expr(kWideLanes)}, dtype, "local"),
        most("most", {Expr(kWideLanes)}, dtype, "local");
    ir::Var block("block", dtype), high("high", dtype);
    // The last vector may repeat elements.
    const Expr from = ir::Min(block * Expr(kWideLanes), n_ - Expr(kWideLanes));
    auto widen = [&](const Expr& lane) {
      const Expr now = rank_(from + lane);
      return Sequence({tir::BufferStore(least, ir::Min(least.Load(At(lane)), now), At(lane)),
                       tir::BufferStore(most, ir::Max(most.Load(At(lane)), now), At(lane))});
    };
    auto of_all = [](Intrin combine, const Buffer& lanes) {
      return ir::CallIntrin(combine, {lanes.Load(At(ir::RampExpr(Expr(0), Expr(1), kWideLanes)))});
    };
    auto half = [](const Expr& e) {
      return ir::Make(ir::BinaryOp::kShiftRight, e, ir::Const(Int(64), 1));
    };
    const Expr fits = ir::Less(half(high) - half(low_), Expr(0x7fffffff));
    return {tir::AllocBuffer(least),
            tir::AllocBuffer(most),
            Lanes([&](const Expr& lane) {
              return Sequence({tir::BufferStore(least, ir::MaxValue(dtype), At(lane)),
                               tir::BufferStore(most, ir::MinValue(dtype), At(lane))});
            }),
            tir::For(block, Expr(0), ir::CeilDiv(n_, Expr(kWideLanes)), tir::ForKind::kSerial,
                     Lanes(widen)),
            tir::Bind(low_, of_all(Intrin::kReduceMin, least)),
            tir::Bind(high, of_all(Intrin::kReduceMax, most)),
            tir::Bind(narrow_, fits)};
  }

 private:
  static Expr Flipped(const Expr& e) {
    return ir::Make(ir::BinaryOp::kBitXor, e, ir::MinValue(e.dtype()));
  }

  LineValue rank_;
  Expr n_;
  ir::Var low_{"low", Int(64)}, narrow_{"narrow", Bool()};
};

// Ranks of 64 bits: by their lower words, then by their upper ones; by the distance from the least
// one alone where that fits a word.
Stmt SortWide(const LineValue& rank, const Expr& n, const Buffer& packed, const Buffer& spare) {
  auto few = [&] {
    return PlaceFew(n, rank, true, [&](const Expr& i, const Expr& before) -> Stmt {
      return tir::BufferStore(packed, i, At(before));
    });
  };
  auto many = [&] {
    const WideRanks ranks(rank, n);
    ir::Var word("word", Int(64));
    auto packed_word = [&](const Expr& at) { return Pack(ranks.Word(at, word), at); };
    Stmt lower =
        Vectors(n, [&](const Expr& i) { return tir::BufferStore(packed, packed_word(i), At(i)); });
    Stmt upper = LoopNest({n}, [&](const Indices& i) {
      ir::Var at("at", Int(64));
      return Sequence(
          {tir::Bind(at, IndexOf(packed.Load(i))), tir::BufferStore(packed, packed_word(at), i)});
    });
    Stmt by_word = Sequence(
        {tir::IfThenElse(ir::Equal(word, Expr(0)), lower, upper), SortByDigits(n, packed, spare)});
    ffi::Array<Stmt> seq = ranks.Find();
    seq.push_back(tir::For(word, Expr(0), ir::Select(ranks.IsNarrow(), Expr(1), Expr(2)),
                           tir::ForKind::kSerial, by_word));
    return Sequence(seq);
  };
  return ByNumber(n, few, many);
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

Expr IndexOf(const Expr& packed) {
  return ir::Make(ir::BinaryOp::kBitAnd, packed, ir::Const(Int(64), 0xffffffff));
}

Stmt SortPacked(const LineValue& value, const Expr& n, const Buffer& packed, const Buffer& spare,
                bool descending) {
  auto rank = [&](const Expr& i) { return RankOf(value(i), descending); };
  if (WideDtype(value(Expr(0)).dtype()).bits > 32) return SortWide(rank, n, packed, spare);
  Stmt fill =
      Vectors(n, [&](const Expr& i) { return tir::BufferStore(packed, Pack(rank(i), i), At(i)); });
  return Sequence({fill, SortElements(n, packed, spare)});
}

bool SelectsByWords(DLDataType dtype) { return WideDtype(dtype).bits > 32; }

Stmt SelectPacked(const LineValue& value, const Expr& n, const Expr& keep, const Buffer& packed,
                  const Buffer& spare, bool descending) {
  const LineValue rank_of = [&](const Expr& i) { return RankOf(value(i), descending); };
  const bool by_words = SelectsByWords(value(Expr(0)).dtype());
  const WideRanks wide(rank_of, n);
  Buffer ranks("ranks", {n}, Int(32));
  const Expr highest = ir::Select(wide.IsNarrow(), Expr(0), Expr(1));
  Stmt fill = Vectors(n, [&](const Expr& i) {
    return tir::BufferStore(ranks, by_words ? wide.Word(i, highest) : rank_of(i), At(i));
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
  // Those below it, and of its equals the first ones; all of them where lower words decide.
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
  const Expr room = keep - count.Get();
  // Most vectors have none of them.
  auto is_found = [&](const Expr& i) { return ir::LessEqual(ranks.Load(At(i)), last.Get()); };
  const Stmt collect = ForThoseOf(n, is_found, push);
  ffi::Array<Stmt> seq;
  if (by_words) seq = wide.Find();
  const Expr most_ties = by_words ? ir::Select(wide.IsNarrow(), room, n) : room;
  seq.push_back(Sequence(
      {tir::AllocBuffer(ranks), last.Alloc(), count.Alloc(), ties.Alloc(), bit.Alloc(), fill,
       last.Set(ir::MinValue(Int(32))), bit.Set(ir::Const(Int(32), 31)), narrow,
       CountLess(ranks, n, last.Get(), count), ties.Set(most_ties), count.Set(Expr(0)), collect}));
  if (!by_words) {
    seq.push_back(SortElements(ir::Min(keep, n), packed, spare));
    return Sequence(seq);
  }
  // In order of whole ranks; what is sorted is a place among them.
  Buffer order("order_of_found", {n + Expr(1)}, Int(64));
  const LineValue rank_of_found = [&](const Expr& i) {
    return rank_of(IndexOf(packed.Load(At(i))));
  };
  seq.push_back(tir::AllocBuffer(order));
  seq.push_back(SortWide(rank_of_found, count.Get(), order, spare));
  seq.push_back(LoopNest({ir::Min(keep, n)}, [&](const Indices& i) {
    return tir::BufferStore(spare, packed.Load(At(IndexOf(order.Load(i)))), i);
  }));
  seq.push_back(LoopNest({ir::Min(keep, n)}, [&](const Indices& i) {
    return tir::BufferStore(packed, spare.Load(i), i);
  }));
  return Sequence(seq);
}

}  // namespace relaxvm::ops
