// SPDX-License-Identifier: Apache-2.0
// FamiliesOf: of stages that have the same form (the parts of a concat), one stage that reads from
// tables where each of them finds its input, and the sizes and places that differ.
#include <cstring>
#include <unordered_map>

#include "schedule/cpu/cpu.h"
#include "tir/address.h"

namespace relaxvm::schedule::cpu {
namespace {

using ir::IntrinObj;
using tir::BufferLoad;

// Below, code for each is as fast to compile and faster to run, as it knows where all lie.
constexpr size_t kLeastMembers = 12;
constexpr size_t kManyFamilies = 8;  // from here on, known sizes are looked up as well

// What one stage has at the places where members of a family may differ.
struct Holes {
  std::vector<Expr> numbers;
  std::vector<Var> inputs;
};

// Walks through a stage, the same way for stages of one form.  Writes its form as a text, and
// gathers what stands in its holes or puts something else there.
class Walk : public tir::StmtMutator {
 public:
  Walk(const Stage& stage, bool sizes_are_holes, const std::function<bool(const Var&)>& is_input,
       arith::Analyzer* analyzer, const Holes* filling = nullptr)
      : stage_(stage),
        sizes_are_holes_(sizes_are_holes),
        is_input_(is_input),
        analyzer_(analyzer),
        filling_(filling) {}

  std::string form;
  Holes found;
  size_t num_sizes = 0;  // the first holes: extents
  bool has_form = true;

  Stage Run() {
    Stage result = stage_;
    has_form = stage_.combine == Combine::kNone && !stage_.IsOpaque() && !stage_.finish.defined();
    if (!has_form) return result;
    for (Axis& axis : result.spatial) axis.extent = Size(axis.extent);
    num_sizes = found.numbers.size();
    Pointer(stage_.out->get());
    result.indices = {Offset(stage_.indices[0])};
    result.value = Mutate(stage_.value);
    return result;
  }

  Expr MutateVar(const Var& v) override {
    for (size_t i = 0; i < stage_.spatial.size(); ++i) {
      if (stage_.spatial[i].var.same_as(v)) return Write('a', static_cast<int64_t>(i)), v;
    }
    if (v.dtype() == Int(64)) return Hole(v);
    Pointer(v.get());
    return v;
  }
  Expr MutateImm(const Expr& e) override {
    if (const auto* imm = e.as<ir::IntImmObj>()) {
      Write('i', imm->value);
    } else if (const auto* imm = e.as<ir::FloatImmObj>()) {
      int64_t bits;
      std::memcpy(&bits, &imm->value, sizeof(bits));
      Write('f', bits);
    } else {
      has_form = false;
    }
    Dtype(e);
    return e;
  }
  Expr MutateBinary(const ir::Binary& b) override {
    const Expr e = b;
    if (e.dtype() == Int(64) && IsFixed(e)) return Hole(e);
    Write('b', static_cast<int64_t>(b->op));
    Dtype(e);
    return StmtMutator::MutateBinary(b);
  }
  Expr MutateCast(const ir::CastExpr& c) override {
    Write('c', 0);
    Dtype(c);
    return StmtMutator::MutateCast(c);
  }
  Expr MutateSelect(const ir::SelectExpr& s) override {
    Write('s', 0);
    return StmtMutator::MutateSelect(s);
  }
  Expr MutateIntrin(const ir::IntrinExpr& i) override {
    Write('n', static_cast<int64_t>(i->intrin));
    Dtype(i);
    return StmtMutator::MutateIntrin(i);
  }
  Expr MutateLet(const ir::LetExpr& l) override { return Other(l); }
  Expr MutateRamp(const ir::RampExpr& r) override { return Other(r); }
  Expr MutateBroadcast(const ir::BroadcastExpr& b) override { return Other(b); }
  Expr MutateShuffle(const ir::ShuffleExpr& s) override { return Other(s); }
  Expr MutateCall(const ir::Call& c) override { return Other(c); }
  Expr MutateBufferLoad(const BufferLoad& load) override {
    if (load->predicate.defined() || load->indices.size() != 1) return Other(load);
    Write('l', 0);
    Dtype(load);
    Var buffer = load->buffer;
    if (is_input_(buffer)) {
      found.inputs.push_back(buffer);
      if (filling_ != nullptr) buffer = filling_->inputs[found.inputs.size() - 1];
    } else {
      Pointer(buffer.get());
    }
    return BufferLoad(buffer, {Offset(load->indices[0])});
  }

 private:
  // A place in memory: axes have the same steps, where it begins may differ.
  Expr Offset(const Expr& e) {
    const auto linear = LinearOffset::Of(e, stage_.spatial);
    if (!linear.has_value()) return Mutate(e);
    Write('o', 0);
    Expr sum = 0;
    for (const Axis& axis : stage_.spatial)
      sum = sum + Size(analyzer_->Simplify(linear->Coeff(axis.var))) * axis.var;
    return sum + Hole(analyzer_->Simplify(linear->rest()));
  }
  // Loops and steps of a known size are compiled for it.
  Expr Size(const Expr& e) {
    const auto known = ir::AsInt(e);
    if (!known.has_value() || (sizes_are_holes_ && *known > 1)) return Hole(e);
    Write('=', *known);
    return e;
  }
  Expr Hole(const Expr& e) {
    if (e.dtype() != Int(64)) return Other(e);
    Write('#', 0);
    found.numbers.push_back(e);
    return filling_ != nullptr ? filling_->numbers[found.numbers.size() - 1] : e;
  }
  Expr Other(const Expr& e) {
    has_form = false;
    return e;
  }
  // Is it the same for all elements?
  bool IsFixed(const Expr& e) const {
    bool fixed = true;
    tir::PostOrderVisit(tir::Evaluate(e), [&](const ffi::ObjectRef& node) {
      if (node.as<tir::BufferLoadObj>() || node.as<IntrinObj>()) fixed = false;
      for (const Axis& axis : stage_.spatial) fixed = fixed && !axis.var.same_as(node);
    });
    return fixed;
  }
  void Write(char kind, int64_t value) {
    form += kind;
    form += std::to_string(value);
  }
  void Pointer(const ffi::Object* p) {
    Write('p', static_cast<int64_t>(std::bit_cast<intptr_t>(p)));
  }
  void Dtype(const Expr& e) {
    const DLDataType t = e.dtype();
    Write(':', t.code << 24 | t.bits << 16 | t.lanes);
  }

  const Stage& stage_;
  bool sizes_are_holes_;
  const std::function<bool(const Var&)>& is_input_;
  arith::Analyzer* analyzer_;
  const Holes* filling_;
};

// Columns of numbers, a row for each member; equal columns are one.
class Table {
 public:
  explicit Table(size_t num_members) : num_members_(num_members) {}

  // A variable that stands for the column in the member's code.
  Var Column(const char* name, std::vector<Expr> values) {
    for (const auto& [var, known] : columns_) {
      bool same = true;
      for (size_t i = 0; same && i < num_members_; ++i)
        same = ir::StructuralEqual(known[i], values[i]);
      if (same) return var;
    }
    columns_.emplace_back(Var(name, Int(64)), std::move(values));
    return columns_.back().first;
  }

  void Emit(Family* family) const {
    const auto width = static_cast<int64_t>(columns_.size());
    const Buffer table("table", {Expr(width * static_cast<int64_t>(num_members_))}, Int(64),
                       "local");
    family->tables.push_back(tir::AllocBuffer(table));
    for (size_t i = 0; i < num_members_; ++i) {
      for (size_t c = 0; c < columns_.size(); ++c) {
        const auto at = static_cast<int64_t>(i) * width + static_cast<int64_t>(c);
        family->tables.push_back(tir::BufferStore(table, columns_[c].second[i], {Expr(at)}));
      }
    }
    for (size_t c = 0; c < columns_.size(); ++c) {
      const Expr at = family->member.var * Expr(width) + Expr(static_cast<int64_t>(c));
      family->pick.push_back(tir::Bind(columns_[c].first, table.Load({at})));
    }
  }

 private:
  size_t num_members_;
  std::vector<std::pair<Var, std::vector<Expr>>> columns_;
};

// `buffer` as any of the inputs whose addresses `address` holds.
Buffer AnyOf(const Buffer& buffer, const Var& address, arith::Analyzer* analyzer) {
  const Expr size = analyzer->Simplify(NumElements(buffer));
  return Buffer(buffer->name,
                tir::BufferType(buffer.elem_dtype(), {size}, tir::kAddressScope, {}, address));
}

class Families {
 public:
  Families(const std::vector<Stage>& stages, const std::function<bool(const Var&)>& is_input,
           arith::Analyzer* analyzer)
      : stages_(stages), is_input_(is_input), analyzer_(analyzer) {}

  std::vector<Family> Run() {
    if (stages_.size() < kLeastMembers) return Alone();
    std::vector<std::vector<size_t>> groups = Groups(/*sizes_are_holes=*/false);
    bool sizes_are_holes = false;
    if (groups.size() >= kManyFamilies) {
      sizes_are_holes = true;
      groups = Groups(/*sizes_are_holes=*/true);
    }
    std::vector<Family> families;
    for (const std::vector<size_t>& group : groups) {
      if (group.size() >= kLeastMembers) {
        families.push_back(Join(group, sizes_are_holes));
        continue;
      }
      for (const size_t i : group) families.push_back(One(stages_[i]));
    }
    return families;
  }

 private:
  static Family One(const Stage& stage) {
    return {stage, {Var("member", Int(64)), Expr(1)}, {}, {}};
  }

  std::vector<Family> Alone() const {
    std::vector<Family> families;
    for (const Stage& stage : stages_) families.push_back(One(stage));
    return families;
  }

  std::vector<std::vector<size_t>> Groups(bool sizes_are_holes) const {
    std::vector<std::vector<size_t>> groups;
    std::unordered_map<std::string, size_t> by_form;
    for (size_t i = 0; i < stages_.size(); ++i) {
      Walk walk(stages_[i], sizes_are_holes, is_input_, analyzer_);
      walk.Run();
      const std::string form = walk.has_form ? walk.form : "alone" + std::to_string(i);
      auto [it, fresh] = by_form.emplace(form, groups.size());
      if (fresh) groups.emplace_back();
      groups[it->second].push_back(i);
    }
    return groups;
  }

  Family Join(const std::vector<size_t>& group, bool sizes_are_holes) const {
    std::vector<Holes> members;
    size_t num_sizes = 0;
    for (const size_t i : group) {
      Walk walk(stages_[i], sizes_are_holes, is_input_, analyzer_);
      walk.Run();
      members.push_back(walk.found);
      num_sizes = walk.num_sizes;
    }
    Family family = One(stages_[group[0]]);
    family.member.extent = static_cast<int64_t>(group.size());
    family.of_one_size = true;
    Table table(group.size());
    Holes filling = members[0];
    for (size_t h = 0; h < filling.numbers.size(); ++h) {
      std::vector<Expr> values;
      bool differ = false;
      for (const Holes& member : members) {
        values.push_back(member.numbers[h]);
        differ = differ || !ir::StructuralEqual(values[0], values.back());
      }
      if (!differ) continue;
      if (h < num_sizes) family.of_one_size = false;
      const Var var = table.Column(h < num_sizes ? "size" : "place", std::move(values));
      if (h >= num_sizes) analyzer_->BindRange(var, arith::Interval::Everything());
      filling.numbers[h] = var;
    }
    ffi::Array<Stmt> inputs;
    for (size_t h = 0; h < filling.inputs.size(); ++h) {
      std::vector<Expr> values;
      bool differ = false;
      for (const Holes& member : members) {
        const Buffer input(member.inputs[h]);
        differ = differ || !input.same_as(members[0].inputs[h]);
        const BufferLoad first(input, ffi::Array<Expr>(input.shape().size(), Expr(0)));
        values.push_back(tir::AddressOf(first));
      }
      if (!differ) continue;
      const Var address = table.Column("address", std::move(values));
      const Buffer any = AnyOf(Buffer(filling.inputs[h]), address, analyzer_);
      inputs.push_back(tir::AllocBuffer(any));
      filling.inputs[h] = any;
    }
    table.Emit(&family);
    for (const Stmt& input : inputs) family.pick.push_back(input);
    Walk fill(stages_[group[0]], sizes_are_holes, is_input_, analyzer_, &filling);
    family.stage = fill.Run();
    family.stage.indices = {analyzer_->Simplify(family.stage.indices[0])};
    family.stage.value = SimplifyOffsets(family.stage.value, analyzer_);
    return family;
  }

  const std::vector<Stage>& stages_;
  const std::function<bool(const Var&)>& is_input_;
  arith::Analyzer* analyzer_;
};

}  // namespace

std::vector<Family> FamiliesOf(const std::vector<Stage>& stages,
                               const std::function<bool(const Var&)>& is_input,
                               arith::Analyzer* analyzer) {
  return Families(stages, is_input, analyzer).Run();
}

}  // namespace relaxvm::schedule::cpu
