// SPDX-License-Identifier: Apache-2.0
// ShareTensorPrograms: tensor programs that differ in numbers only become one, whose further inputs
// are these numbers; the same for formulas of sizes, which become variables.  Quantized models have
// a scale in almost every kernel, networks of dynamic size do the same at several resolutions.
// Stage: lowered, before schedules.  Leaves alone: exported programs, and those that are called in
// another way than by call_tir.
#include <algorithm>
#include <cstring>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "analysis/calls.h"
#include "analysis/program_kind.h"
#include "ir/visitor.h"
#include "ops/op_def.h"
#include "passes/pass.h"
#include "support/host_tensor.h"
#include "tir/functor.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;
using tir::Buffer;

// The numbers of a program that may as well be read from memory, in order of appearance: operands
// of sums and products in what an elementwise block stores.  All others may decide about the form
// of a schedule or of an instruction: indices, bounds, divisors, exponents, what padding holds, and
// those of reductions.
class NumberMutator : public tir::StmtMutator {
 public:
  Expr MutateBinary(const ir::Binary& e) override {
    const bool outer = in_value_;
    in_value_ = outer && !IsBool(e.dtype());
    const bool lifts = in_value_ && (e->op == ir::BinaryOp::kAdd || e->op == ir::BinaryOp::kSub ||
                                     e->op == ir::BinaryOp::kMul);
    Expr a = lifts && IsNumber(e->a) ? Number(next_++, e->a) : Mutate(e->a);
    Expr b = lifts && IsNumber(e->b) ? Number(next_++, e->b) : Mutate(e->b);
    in_value_ = outer;
    if (a.same_as(e->a) && b.same_as(e->b)) return e;
    return ir::Binary(e->op, a, b, e->span);
  }
  Expr MutateBufferLoad(const tir::BufferLoad& load) override {
    bool outer = std::exchange(in_value_, false);
    Expr out = tir::StmtMutator::MutateBufferLoad(load);
    in_value_ = outer;
    return out;
  }
  tir::Stmt MutateBufferStore(const tir::BufferStore& store) override {
    in_value_ = !in_reduction_;
    Expr value = Mutate(store->value);
    in_value_ = false;
    if (value.same_as(store->value)) return store;
    return tir::BufferStore(store->buffer, value, store->indices, store->predicate, store->span);
  }
  tir::Stmt MutateSBlock(const tir::SBlock& block) override {
    std::vector<Buffer> outer = std::exchange(new_reads_, {});
    const bool outside = std::exchange(in_reduction_, in_reduction_ || Reduces(block));
    tir::Stmt body = Mutate(block->body);
    in_reduction_ = outside;
    ffi::Array<tir::BufferRegion> reads = block->reads;
    for (const Buffer& read : new_reads_) reads.push_back({read, {}, {}});
    new_reads_.insert(new_reads_.begin(), outer.begin(), outer.end());
    if (body.same_as(block->body)) return block;
    return tir::SBlock(block->iter_vars, reads, block->writes, block->name_hint, body, block->init,
                       block->alloc_buffers, block->annotations, block->span);
  }

 protected:
  virtual Expr Number(size_t index, const Expr& number) = 0;
  std::vector<Buffer> new_reads_;  // of the block at hand, those inside of it too

 private:
  static bool IsNumber(const Expr& e) {
    DLDataType dtype = e.dtype();
    if (e.as<ir::FloatImmObj>()) return dtype == Float(32) || dtype == Float(64);
    // Wide integers are indices.
    return e.as<ir::IntImmObj>() && !IsBool(dtype) && dtype.bits <= 32;
  }

  static bool Reduces(const tir::SBlock& block) {
    return block->init.defined() ||
           std::any_of(block->iter_vars.begin(), block->iter_vars.end(),
                       [](const auto& axis) { return axis->kind != tir::IterKind::kSpatial; });
  }

  bool in_value_ = false, in_reduction_ = false;
  size_t next_ = 0;
};

// The program with all numbers made 0, and the numbers.
class Outline : public NumberMutator {
 public:
  std::vector<Expr> numbers;

 protected:
  Expr Number(size_t, const Expr& number) override {
    numbers.push_back(number);
    if (number.as<ir::FloatImmObj>()) return ir::FloatImm(number.dtype(), 0);
    return ir::IntImm(number.dtype(), 0);
  }
};

// Replaces numbers by what buffers hold.
class Lifter : public NumberMutator {
 public:
  explicit Lifter(const std::unordered_map<size_t, Buffer>& buffers) : buffers_(buffers) {}

 protected:
  Expr Number(size_t index, const Expr& number) override {
    auto it = buffers_.find(index);
    if (it == buffers_.end()) return number;
    new_reads_.push_back(it->second);
    return it->second.Load({});
  }

 private:
  const std::unordered_map<size_t, Buffer>& buffers_;
};

// The sizes of a program's arguments that are formulas become variables: what a network does at one
// resolution it often does at others.  A size that is a formula of others stays one: schedules of
// what doubles a picture need to know.
class SizeLifter : public tir::StmtMutator {
 public:
  // `names`: the variables, common to all programs; grows.
  SizeLifter(const tir::PrimFunc& program, std::vector<ir::Var>* names) {
    std::vector<std::pair<size_t, Expr>> sizes;  // short formulas first: others may be made of them
    for (const ir::Var& param : program->params) {
      if (!tir::IsBuffer(param)) continue;
      for (const Expr& size : Buffer(param).shape()) sizes.emplace_back(LengthOf(size), size);
    }
    std::stable_sort(sizes.begin(), sizes.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [length, size] : sizes) Add(size, names);
  }

  Expr MutateBinary(const ir::Binary& e) override {
    for (size_t i = 0; i < sizes_.size(); ++i) {
      if (ir::StructuralEqual(sizes_[i], e)) return vars_[i];
    }
    return tir::StmtMutator::MutateBinary(e);
  }

 private:
  static size_t LengthOf(const Expr& size) {
    size_t length = 0;
    tir::PostOrderVisit(tir::Evaluate(size), [&](const ffi::ObjectRef&) { ++length; });
    return length;
  }

  // Sums and products of other sizes?
  bool IsMadeOfKnown(const Expr& size) const {
    bool is_made = true;
    tir::PostOrderVisit(tir::Evaluate(size), [&](const ffi::ObjectRef& node) {
      if (auto var = node.as<ir::Var>()) is_made = is_made && known_.count(var->get()) != 0;
      const auto* e = node.as<ir::BinaryObj>();
      is_made = is_made && (e == nullptr || e->op == ir::BinaryOp::kAdd ||
                            e->op == ir::BinaryOp::kSub || e->op == ir::BinaryOp::kMul);
    });
    return is_made;
  }

  void Add(const Expr& size, std::vector<ir::Var>* names) {
    if (size.as<ir::VarObj>() != nullptr) known_.insert(size.get());
    if (size.as<ir::BinaryObj>() == nullptr) return;
    if (IsMadeOfKnown(Mutate(size))) return;
    if (names->size() == sizes_.size())
      names->push_back(ir::Var("n" + std::to_string(names->size()), Int(64)));
    vars_.push_back((*names)[sizes_.size()]);
    known_.insert(vars_.back().get());
    sizes_.push_back(size);
  }

  std::vector<Expr> sizes_;
  std::vector<ir::Var> vars_;
  std::unordered_set<const ffi::Object*> known_;  // sizes that are variables
};

// The variables that a program reads, also in the types of its buffers.
class ReadVars : public tir::StmtMutator {
 public:
  std::unordered_set<const ffi::Object*> found;

  Expr MutateVar(const ir::Var& var) override {
    found.insert(var.get());
    return var;
  }
};

struct Member {
  ir::GlobalVar var;
  tir::PrimFunc program;  // with sizes lifted
  std::vector<Expr> numbers;
  std::vector<size_t> scalars;  // that the program still takes
};

// Programs with one outline.
struct Group {
  Expr outline;
  std::vector<Member> members;
};

template <typename T>
ffi::Tensor ScalarOf(T value, DLDataType dtype) {
  ffi::Tensor tensor = NewHostTensor({}, dtype);
  std::memcpy(tensor.data_ptr(), &value, sizeof(T));
  return tensor;
}

ir::Constant ConstantOf(const Expr& number) {
  DLDataType dtype = number.dtype();
  if (auto* real = number.as<ir::FloatImmObj>()) {
    return ir::Constant(dtype.bits == 64 ? ScalarOf(real->value, dtype)
                                         : ScalarOf(static_cast<float>(real->value), dtype));
  }
  int64_t value = number.as<ir::IntImmObj>()->value;  // little-endian: the low bytes come first
  ffi::Tensor tensor = NewHostTensor({}, dtype);
  std::memcpy(tensor.data_ptr(), &value, static_cast<size_t>(dtype.bits) / 8);
  return ir::Constant(tensor);
}

bool SameNumber(const Expr& a, const Expr& b) {
  if (auto* real = a.as<ir::FloatImmObj>()) {
    double left = real->value, right = b.as<ir::FloatImmObj>()->value;
    return std::memcmp(&left, &right, sizeof(left)) == 0;  // NaN is one number, -0 is not 0
  }
  return a.as<ir::IntImmObj>()->value == b.as<ir::IntImmObj>()->value;
}

// What a call of a member becomes: a call of the shared program with the member's numbers.
struct Target {
  ir::GlobalVar program;
  ffi::Array<Expr> numbers;
  std::vector<size_t> scalars;
};

class CallRewriter : public ir::Mutator {
 public:
  explicit CallRewriter(const std::unordered_map<const ffi::Object*, Target>& targets)
      : targets_(targets) {}

  Expr MutateCall(const ir::Call& call) override {
    std::optional<analysis::TirCall> tir = analysis::AsCallTir(call);
    auto it = tir ? targets_.find(tir->func.get()) : targets_.end();
    if (it == targets_.end()) return ir::Mutator::MutateCall(call);
    ffi::Array<Expr> tensors = tir->args;
    for (const Expr& number : it->second.numbers) tensors.push_back(number);
    ffi::Array<Expr> args = call->args;
    args.Set(0, it->second.program);
    args.Set(1, ir::Tuple(tensors));
    if (args.size() > 2) {
      ffi::Array<Expr> scalars;
      for (size_t i : it->second.scalars) scalars.push_back(tir->tir_vars[static_cast<int64_t>(i)]);
      args.resize(2);
      if (!scalars.empty()) args.push_back(ir::ShapeExpr(scalars));
    }
    return ir::Call(call->op, args, call->attrs, call->ty_args, call->span, call->ty);
  }

 private:
  const std::unordered_map<const ffi::Object*, Target>& targets_;
};

// Programs that something but call_tir names.
class OtherUses : public ir::Visitor {
 public:
  std::unordered_set<const ffi::Object*> found;

  void VisitCall(const ir::CallObj* call) override {
    if (!analysis::AsCallTir(ffi::GetRef<ir::Call>(call))) return ir::Visitor::VisitCall(call);
    for (size_t i = 1; i < call->args.size(); ++i) Visit(call->args[i]);
  }
  void VisitGlobalVar(const ir::GlobalVarObj* var) override { found.insert(var); }
};

class Sharer {
 public:
  explicit Sharer(const IRModule& mod) : mod_(mod) {}

  IRModule Run() {
    for (const Group& group : Groups()) {
      if (group.members.size() > 1) Share(group);
    }
    if (targets_.empty()) return mod_;
    IRModule out(functions_, mod_->attrs, mod_->global_infos);
    return ir::MutateFunctions(std::move(out), [&](const ir::GlobalVar&, const ir::Function& f) {
      return CallRewriter(targets_).Mutate(f).as<ir::Function>().value();
    });
  }

 private:
  std::vector<Group> Groups() {
    OtherUses uses;
    for (const auto& [var, func] : mod_->functions) {
      if (auto function = func.as<ir::Function>()) uses.Visit(*function);
    }
    std::map<std::string, Member> by_name;  // so that the result does not depend on addresses
    for (const auto& [var, func] : mod_->functions) {
      functions_.Set(var, func);
      auto program = func.as<tir::PrimFunc>();
      if (program && !(*program)->attrs.count(ir::attr::kGlobalSymbol) &&
          !(*program)->attrs.count(tir::attr::kScheduled) && !uses.found.count(var.get())) {
        by_name.emplace(var->name_hint, WithoutSizes(var, *program));
      }
    }
    std::vector<Group> groups;
    std::unordered_map<uint64_t, std::vector<size_t>> by_hash;
    for (auto& [name, member] : by_name) {
      Outline outline;
      Expr shape = outline.Mutate(member.program);
      member.numbers = std::move(outline.numbers);
      std::vector<size_t>& found = by_hash[ir::StructuralHash(shape)];
      auto same = std::find_if(found.begin(), found.end(), [&](size_t i) {
        return ir::StructuralEqual(groups[i].outline, shape);
      });
      if (same == found.end()) {
        same = found.insert(found.end(), groups.size());
        groups.push_back({shape, {}});
      }
      groups[*same].members.push_back(std::move(member));
    }
    return groups;
  }

  Member WithoutSizes(const ir::GlobalVar& var, const tir::PrimFunc& program) {
    Expr lifted = SizeLifter(program, &size_names_).Mutate(program);
    auto func = lifted.as<tir::PrimFunc>().value();
    ReadVars reader;
    reader.Mutate(func);
    ffi::Array<ir::Var> params;
    std::vector<size_t> kept;
    size_t scalar = 0;
    for (const ir::Var& param : func->params) {
      if (!tir::IsBuffer(param)) {
        const size_t place = scalar++;
        if (!reader.found.count(param.get())) continue;
        kept.push_back(place);
      }
      params.push_back(param);
    }
    return {var, tir::PrimFunc(params, func->body, func->attrs, func->span), {}, kept};
  }

  void Share(const Group& group) {
    const Member& first = group.members[0];
    std::vector<size_t> different;
    std::unordered_map<size_t, Buffer> buffers;
    for (size_t i = 0; i < first.numbers.size(); ++i) {
      auto same = [&](const Member& m) { return SameNumber(m.numbers[i], first.numbers[i]); };
      if (std::all_of(group.members.begin(), group.members.end(), same)) continue;
      std::string name = "number" + std::to_string(different.size());
      different.push_back(i);
      buffers.emplace(i, Buffer(name, {}, first.numbers[i].dtype()));
    }
    ir::GlobalVar var(first.var->name_hint);
    tir::PrimFunc shared = Lifted(first.program, buffers, different);
    for (const Member& member : group.members) {
      ffi::Array<Expr> numbers;
      for (size_t i : different) numbers.push_back(ConstantOf(member.numbers[i]));
      functions_.erase(member.var);
      targets_.emplace(member.var.get(), Target{var, numbers, member.scalars});
    }
    functions_.Set(var, shared);
  }

  // The program with buffers for its numbers, after its other inputs.
  static tir::PrimFunc Lifted(const tir::PrimFunc& program,
                              const std::unordered_map<size_t, Buffer>& buffers,
                              const std::vector<size_t>& order) {
    size_t num_inputs = analysis::ParamsOf(program).inputs.size();
    ffi::Array<ir::Var> params;
    for (size_t i = 0; i <= program->params.size(); ++i) {
      if (i == num_inputs) {
        for (size_t number : order) params.push_back(buffers.at(number));
      }
      if (i < program->params.size()) params.push_back(program->params[i]);
    }
    tir::Stmt body = Lifter(buffers).Mutate(program->body);
    return tir::PrimFunc(params, body, program->attrs, program->span);
  }

  IRModule mod_;
  ffi::Map<ir::GlobalVar, ir::BaseFunc> functions_;
  std::unordered_map<const ffi::Object*, Target> targets_;
  std::vector<ir::Var> size_names_;
};

}  // namespace

IRModule ShareTensorPrograms(IRModule mod, const PassContext& context) { return Sharer(mod).Run(); }

}  // namespace relaxvm::passes
