// SPDX-License-Identifier: Apache-2.0
// The CPU schedule: stages that share rows run row by row, contractions run on tiles, rows are
// split over threads.
#include "schedule/cpu/context.h"
#include "schedule/cpu/winograd.h"
#include "tir/dot.h"

namespace relaxvm::schedule::cpu {
namespace {

using tir::BufferLoadObj;
using tir::SeqStmt;

constexpr int kCostlyFinish = 20;  // additions; mostly empty vectors waste it

// Attention becomes one statement: what is known about it is lost when formulas are put together.
Program WithAttention(Program program, const Machine& traits) {
  arith::Analyzer analyzer;
  for (size_t at = 0; at < program.stages.size(); ++at) {
    auto found = EmitAttention(program, at, traits, &analyzer);
    if (!found.has_value()) continue;
    Stage done;
    done.name = "attention";
    done.opaque = RunRows(found->form, &analyzer);
    auto begin = program.stages.begin() + static_cast<std::ptrdiff_t>(at);
    program.stages.erase(begin, begin + static_cast<std::ptrdiff_t>(found->num_stages));
    program.stages.insert(program.stages.begin() + static_cast<std::ptrdiff_t>(at), done);
  }
  return program;
}

// Of a program that is scheduled but for what the machine's registers hold, the form for this one.
class ForMachine : public tir::StmtMutator {
 public:
  explicit ForMachine(const Machine& machine) : machine_(machine) {}

  PrimFunc Take(const PrimFunc& func) {
    Stmt body = Mutate(func->body);
    return body.same_as(func->body) ? func : PrimFunc(func->params, body, func->attrs, func->span);
  }

  Expr MutateIntrin(const ir::IntrinExpr& e) override {
    if (e->intrin != ir::Intrin::kVectorRoom) return StmtMutator::MutateIntrin(e);
    return Expr(machine_.num_vectors * machine_.Lanes(e->args[0].dtype().bits / 8));
  }
  Stmt MutateIfThenElse(const tir::IfThenElse& s) override {
    Expr condition = Mutate(s->condition);
    auto known = ir::AsInt(condition);
    if (condition.same_as(s->condition) || !known) return StmtMutator::MutateIfThenElse(s);
    if (*known != 0) return Mutate(s->then_case);
    return s->else_case.defined() ? Mutate(s->else_case) : Stmt(tir::Evaluate(Expr(0)));
  }

 private:
  const Machine& machine_;
};

// What a kernel adds up.
struct Sums {
  bool any = false;    // products, or exponentials next to the greatest of them
  bool pairs = false;  // products of bfloat16 pairs
};

Sums SumsOf(const Stmt& body) {
  Sums found;
  tir::PostOrderVisit(body, [&](const ffi::ObjectRef& node) {
    const auto* call = node.as<ir::IntrinObj>();
    if (call == nullptr) return;
    const bool product = call->intrin == ir::Intrin::kFma;
    found.any = found.any || product || call->intrin == ir::Intrin::kExpOfNegative;
    found.pairs =
        found.pairs || (product && tir::AsDotOfPairs(ffi::GetRef<Expr>(call)).has_value());
  });
  return found;
}

class Scheduler {
 public:
  Scheduler(Program program, const Machine& machine) : context_(std::move(program), machine) {}

  PrimFunc Run() {
    ffi::Array<Stmt> parts;
    for (size_t at = 0; at < context_.program.stages.size();) {
      const Stage& stage = context_.program.stages[at];
      if (stage.IsOpaque()) {
        parts.push_back(stage.opaque);
        ++at;
        continue;
      }
      if (auto form = ReadWinograd(context_.program, at)) {
        parts.push_back(Winograd(*form, at));
        at += 3;
        continue;
      }
      if (const Stage* after = stage.combine != Combine::kNone ? EpilogueOf(at) : nullptr) {
        context_.gone.insert(stage.out->get());
        const Stage finished = FinishWith(stage, *after);
        context_.program.stages.erase(context_.program.stages.begin() +
                                      static_cast<std::ptrdiff_t>(at));
        context_.program.stages[at] = finished;
      }
      const Stage split = SplitAxes(context_.program.stages[at], &context_.analyzer);
      if (IsContraction(split)) {
        if (auto done = EmitContraction(split, context_.machine, &context_.analyzer)) {
          const Expr dots = BetterAsDots(split, context_.machine, &context_.analyzer);
          if (!dots.defined())
            parts.push_back(*done);
          else if (ir::IsIntValue(dots, 1))
            parts.push_back(EmitSingle(split, &context_));
          else
            parts.push_back(tir::IfThenElse(dots, EmitSingle(split, &context_), *done));
          ++at;
          continue;
        }
      }
      size_t end = at;
      parts.push_back(EmitGroup(at, &context_, &end));
      at = end;
    }
    ffi::Array<Stmt> body = context_.program.checks;
    for (const Buffer& b : context_.program.temps) {
      if (!context_.gone.count(b.get())) body.push_back(tir::AllocBuffer(b));
    }
    for (const Stmt& part : parts) body.push_back(part);
    auto copy = ffi::make_object<tir::PrimFuncObj>(*context_.program.func.get());
    copy->body = SeqStmt::Flatten(body);
    copy->attrs.Set(tir::attr::kScheduled, true);
    const Sums sums = SumsOf(copy->body);
    if (sums.any) copy->attrs.Set(tir::kFlushSubnormals, true);
    if (sums.pairs && context_.machine.dot_bf16) copy->attrs.Set(tir::kFastPairs, true);
    return ir::NodeRef<PrimFunc>(std::move(copy));
  }

 private:
  // Three stages, and what finishes the last one.
  Stmt Winograd(const WinogradForm& form, size_t at) {
    if (const Stage* after = EpilogueOf(at + 2)) {
      context_.gone.insert(context_.program.stages[at + 2].out->get());
      const Stage finished = FinishWith(context_.program.stages[at + 2], *after);
      context_.program.stages.erase(context_.program.stages.begin() +
                                    static_cast<std::ptrdiff_t>(at + 2));
      context_.program.stages[at + 2] = finished;
    }
    for (size_t i = at; i < at + 2; ++i)
      context_.gone.insert(context_.program.stages[i].out->get());
    const Stage &input = context_.program.stages[at], &product = context_.program.stages[at + 1],
                &output = context_.program.stages[at + 2];
    auto by_tiles = [&](const WinogradForm& of) {
      return EmitWinograd(of, input, product, output, context_.machine, &context_.analyzer);
    };
    Stmt tiles = by_tiles(form);
    if (!form.has_plain) return tiles;
    const FewTiles few = WhenFewTiles(form, output, context_.machine);
    if (few.small_are_faster.defined())
      tiles = tir::IfThenElse(few.small_are_faster, by_tiles(form.WithSmallTiles()), tiles);
    const Stage plain = SplitAxes(PlainStage(form, input, product, output), &context_.analyzer);
    const auto direct = EmitContraction(plain, context_.machine, &context_.analyzer);
    RELAXVM_CHECK(direct.has_value()) << "a convolution with the plain weights is no contraction";
    return tir::IfThenElse(few.plain_is_faster, *direct, tiles);
  }

  // A contraction whose vectors would be mostly empty.
  bool HasFewColumns(const Stage& stage) const {
    if (stage.spatial.empty() || !IsContraction(SplitAxes(stage, &context_.analyzer))) return false;
    const auto columns = ir::AsInt(stage.spatial.back().extent);
    return columns.has_value() && columns.value() * 4 <= context_.machine.Lanes(ElemBytes(stage));
  }

  // The next stage, when it consumes the contraction element by element and nobody else does.
  const Stage* EpilogueOf(size_t at) const {
    if (at + 1 >= context_.program.stages.size()) return nullptr;
    const Stage& main = context_.program.stages[at];
    const Stage& next = context_.program.stages[at + 1];
    if (!context_.temps.count(main.out->get()) || next.IsOpaque() || next.combine != Combine::kNone)
      return nullptr;
    if (!ReadsBuffer(next, *main.out) || !context_.ReadOnlyBy(*main.out, at + 1, at + 2))
      return nullptr;
    if (next.spatial.size() != main.spatial.size() || main.indices.size() != main.spatial.size())
      return nullptr;
    for (size_t i = 0; i < main.spatial.size(); ++i) {
      if (!main.indices[i].same_as(main.spatial[i].var)) return nullptr;
      // What takes a part of the results alone has other places for them.
      if (!context_.analyzer.ProveEqual(main.spatial[i].extent, next.spatial[i].extent))
        return nullptr;
    }
    if (HasFewColumns(main) && CostOf(next.value) >= kCostlyFinish) return nullptr;
    bool identity = true;
    tir::PostOrderVisit(tir::Evaluate(next.value), [&](const ffi::ObjectRef& node) {
      const auto* load = node.as<BufferLoadObj>();
      if (load == nullptr || !load->buffer.same_as(*main.out)) return;
      for (size_t i = 0; i < load->indices.size(); ++i)
        identity = identity && load->indices[i].same_as(next.spatial[i].var);
    });
    return identity ? &next : nullptr;
  }

  Context context_;
};

}  // namespace

PrimFunc Schedule(const PrimFunc& func, const Machine& traits) {
  if (ir::GetAttr<bool>(func->attrs, tir::attr::kScheduled, false)) return func;
  std::optional<Program> program = ParseProgram(func);
  if (!program.has_value()) return ForMachine(traits).Take(func);
  Program inlined =
      InlineStages(KnowExponents(WithAttention(InlineLoads(std::move(*program)), traits)));
  return Scheduler(WidenHalves(std::move(inlined)), traits).Run();
}

}  // namespace relaxvm::schedule::cpu
