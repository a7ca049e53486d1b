// SPDX-License-Identifier: Apache-2.0
// Bit sets per basic block, only for registers that live across blocks; one backward pass inside
// each block; then a linear scan gives each register a slot.
#include "vm/liveness.h"

#include <algorithm>
#include <queue>

#include "support/error.h"

namespace relaxvm::vm {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

struct Block {
  uint32_t begin, end;  // operations
  uint32_t successors[2] = {kNone, kNone};
};

// The register that `insn` writes, or kNone.
uint32_t Defined(const LowInsn& insn) {
  return insn.dst < 0 ? kNone : static_cast<uint32_t>(insn.dst);
}

class Analysis {
 public:
  Analysis(LowFunction* function, LoadScratch* scratch)
      : fn_(*function),
        insns_(function->insns),
        scratch_(*scratch),
        block_of_(scratch->block_of),
        live_end_(scratch->live_end),
        first_(scratch->first),
        last_(scratch->last) {}

  Liveness Run() {
    MakeBlocks();
    FindGlobals();
    Solve();
    result_.is_result_dead.assign(insns_.size(), false);
    first_.assign(fn_.num_registers, kNone);
    last_.assign(fn_.num_registers, 0);
    live_end_.assign(fn_.num_registers, kNone);
    ranges_.reserve(insns_.size());
    for (uint32_t b = 0; b < blocks_.size(); ++b) ScanBlock(b);
    Entry();
    Edges();
    AssignSlots();
    return std::move(result_);
  }

 private:
  using Word = uint64_t;

  // Blocks of reachable code, in order.
  void MakeBlocks() {
    size_t n = insns_.size();
    std::vector<uint8_t>& reachable = result_.is_reachable;
    reachable.assign(n, false);
    std::vector<uint32_t> work = {0};
    std::vector<uint8_t>& is_leader = scratch_.is_leader;
    is_leader.assign(n + 1, false);
    is_leader[0] = true;
    while (!work.empty()) {
      uint32_t at = work.back();
      work.pop_back();
      while (!reachable[at]) {
        reachable[at] = true;
        const LowInsn& insn = insns_[at];
        bool jumps = insn.op == Op::kGoto || insn.op == Op::kGotoBack || IsBranch(insn.op);
        if (jumps) {
          is_leader[insn.target] = true;
          is_leader[at + 1] = true;
          work.push_back(insn.target);
        }
        if (EndsFlow(insn.op)) {
          is_leader[at + 1] = true;
          break;
        }
        ++at;
      }
    }
    block_of_.assign(n, kNone);
    for (uint32_t i = 0; i < n; ++i) {
      if (!reachable[i]) continue;
      if (is_leader[i] || blocks_.empty() || blocks_.back().end != i) blocks_.push_back({i, i});
      blocks_.back().end = i + 1;
      block_of_[i] = static_cast<uint32_t>(blocks_.size() - 1);
    }
    for (Block& block : blocks_) {
      const LowInsn& last = insns_[block.end - 1];
      if (!EndsFlow(last.op)) block.successors[0] = block_of_[block.end];
      if (last.op == Op::kGoto || last.op == Op::kGotoBack)
        block.successors[0] = block_of_[last.target];
      if (IsBranch(last.op)) block.successors[1] = block_of_[last.target];
    }
  }

  // Registers that some block reads before it writes them, and where.
  void FindGlobals() {
    global_.assign(fn_.num_registers, kNone);
    // The block that wrote the register, or read it first.
    std::vector<uint32_t>& seen_in = scratch_.seen_in;
    seen_in.assign(fn_.num_registers, kNone);
    for (uint32_t b = 0; b < blocks_.size(); ++b) {
      for (uint32_t i = blocks_[b].begin; i < blocks_[b].end; ++i) {
        const LowInsn& insn = insns_[i];
        const LowOperand* args = fn_.args(insn);
        for (uint32_t k = 0; k < insn.num_args; ++k) {
          const LowOperand& arg = args[k];
          if (arg.is_const || seen_in[arg.index] == b) continue;
          seen_in[arg.index] = b;
          uint32_t& global = global_[arg.index];
          if (global == kNone) {
            global = static_cast<uint32_t>(globals_.size());
            globals_.push_back(arg.index);
          }
          first_reads_.push_back({b, global});
        }
        if (Defined(insn) != kNone) seen_in[Defined(insn)] = b;
      }
    }
    num_words_ = (globals_.size() + 63) / 64;
    size_t limit = (size_t{1} << 20) + 64 * (insns_.size() + fn_.operands.size());
    if (blocks_.size() * num_words_ * sizeof(Word) * 2 > limit) {
      Fail(ErrorKind::kValueError, "function ", fn_.info->name,
           " has too many registers alive across too many blocks (", globals_.size(), " across ",
           blocks_.size(), "); split it into functions");
    }
  }

  bool Test(const std::vector<Word>& sets, uint32_t block, uint32_t global) const {
    return (sets[block * num_words_ + global / 64] >> (global % 64)) & 1;
  }

  // in = use | (out & ~def), out = union of in over successors
  void Solve() {
    size_t size = blocks_.size() * num_words_;
    in_.assign(size, 0);
    for (auto [block, global] : first_reads_)
      in_[block * num_words_ + global / 64] |= Word{1} << (global % 64);
    if (blocks_.size() == 1 && blocks_[0].successors[0] == kNone) return;
    std::vector<Word> def(size, 0);
    std::vector<std::vector<uint32_t>> predecessors(blocks_.size());
    for (uint32_t b = 0; b < blocks_.size(); ++b) {
      for (uint32_t i = blocks_[b].begin; i < blocks_[b].end; ++i) {
        uint32_t reg = Defined(insns_[i]);
        if (reg == kNone || global_[reg] == kNone) continue;
        def[b * num_words_ + global_[reg] / 64] |= Word{1} << (global_[reg] % 64);
      }
      for (uint32_t s : blocks_[b].successors) {
        if (s != kNone) predecessors[s].push_back(b);
      }
    }
    // Last block first: most edges go forward, so most blocks are visited once.
    std::priority_queue<uint32_t> work;
    std::vector<bool> is_queued(blocks_.size(), true);
    for (uint32_t b = 0; b < blocks_.size(); ++b) work.push(b);
    while (!work.empty()) {
      uint32_t b = work.top();
      work.pop();
      is_queued[b] = false;
      bool changed = false;
      for (size_t w = 0; w < num_words_; ++w) {
        Word next = in_[b * num_words_ + w] | (Out(b, w) & ~def[b * num_words_ + w]);
        changed |= next != in_[b * num_words_ + w];
        in_[b * num_words_ + w] = next;
      }
      if (!changed) continue;
      for (uint32_t p : predecessors[b]) {
        if (!is_queued[p]) {
          is_queued[p] = true;
          work.push(p);
        }
      }
    }
  }

  Word Out(uint32_t block, size_t word) const {
    Word out = 0;
    for (uint32_t s : blocks_[block].successors) {
      if (s != kNone) out |= in_[s * num_words_ + word];
    }
    return out;
  }

  template <typename F>
  static void ForEachBit(Word bits, size_t word, F f) {
    for (; bits != 0; bits &= bits - 1)
      f(static_cast<uint32_t>(word * 64 + static_cast<size_t>(__builtin_ctzll(bits))));
  }

  // Marks last uses and dead results, and records where each register is live.
  void ScanBlock(uint32_t b) {
    for (size_t w = 0; w < num_words_; ++w) {
      ForEachBit(Out(b, w), w, [&](uint32_t g) { live_end_[globals_[g]] = blocks_[b].end; });
    }
    for (uint32_t i = blocks_[b].end; i-- > blocks_[b].begin;) {
      LowInsn& insn = insns_[i];
      if (uint32_t reg = Defined(insn); reg != kNone) {
        if (live_end_[reg] == kNone) {
          result_.is_result_dead[i] = true;
        } else {
          AddRange(reg, i + 1, live_end_[reg]);
          Extend(reg, 2 * i + 1);
          live_end_[reg] = kNone;
        }
      }
      LowOperand* args = fn_.args(insn);
      for (uint32_t k = insn.num_args; k-- > 0;) {
        LowOperand& arg = args[k];
        if (arg.is_const || live_end_[arg.index] != kNone) continue;
        arg.is_last_use = true;
        live_end_[arg.index] = i + 1;
      }
    }
    // What is alive here came from another block, or was never written.
    for (size_t w = 0; w < num_words_; ++w) {
      ForEachBit(in_[b * num_words_ + w], w, [&](uint32_t g) {
        uint32_t& end = live_end_[globals_[g]];
        AddRange(globals_[g], blocks_[b].begin, end);
        end = kNone;
      });
    }
  }

  void AddRange(uint32_t reg, uint32_t from, uint32_t to) {
    if (from >= to) return;
    Extend(reg, 2 * from);
    Extend(reg, 2 * (to - 1));
    ranges_.push_back({reg, from, to});
  }

  void Extend(uint32_t reg, uint32_t position) {
    first_[reg] = first_[reg] == kNone ? position : std::min(first_[reg], position);
    last_[reg] = std::max(last_[reg], position);
  }

  bool IsLiveAtEntry(uint32_t reg) const {
    return global_[reg] != kNone && Test(in_, 0, global_[reg]);
  }

  void Entry() {
    uint32_t num_params = static_cast<uint32_t>(fn_.info->num_args);
    for (uint32_t reg = 0; reg < num_params; ++reg) {
      if (!IsLiveAtEntry(reg)) result_.entry_drops.push_back(reg);
    }
    for (uint32_t reg : globals_) {
      if (reg >= num_params && IsLiveAtEntry(reg)) result_.entry_nulls.push_back(reg);
    }
  }

  void Edges() {
    size_t total = 0;
    size_t limit = (size_t{1} << 16) + 16 * (insns_.size() + fn_.operands.size());
    for (uint32_t b = 0; b < blocks_.size(); ++b) {
      const Block& block = blocks_[b];
      if (block.successors[1] == kNone) continue;
      Liveness::EdgeDrops drops{block.end - 1, {}, {}};
      for (size_t w = 0; w < num_words_; ++w) {
        Word on_true = in_[block.successors[0] * num_words_ + w],
             on_false = in_[block.successors[1] * num_words_ + w];
        ForEachBit(on_false & ~on_true, w,
                   [&](uint32_t g) { drops.on_true.push_back(globals_[g]); });
        ForEachBit(on_true & ~on_false, w,
                   [&](uint32_t g) { drops.on_false.push_back(globals_[g]); });
      }
      total += drops.on_true.size() + drops.on_false.size();
      if (total > limit) {
        Fail(ErrorKind::kValueError, "function ", fn_.info->name,
             " has too many registers that die at branches; split it into functions");
      }
      if (!drops.on_true.empty() || !drops.on_false.empty())
        result_.edge_drops.push_back(std::move(drops));
    }
  }

  // Positions: 2 * i is "live-in at i", 2 * i + 1 "written by i".  Parameters keep the slots they
  // arrive in.
  void AssignSlots() {
    uint32_t num_params = static_cast<uint32_t>(fn_.info->num_args);
    result_.slot.assign(fn_.num_registers, 0);
    std::vector<uint32_t>& order = scratch_.order;
    order.clear();
    for (uint32_t reg = 0; reg < fn_.num_registers; ++reg) {
      if (reg < num_params) {
        result_.slot[reg] = reg;
        if (first_[reg] != kNone) first_[reg] = 0;
      } else if (first_[reg] != kNone) {
        if (IsLiveAtEntry(reg)) first_[reg] = 0;
        order.push_back(reg);
      }
    }
    auto is_before = [&](uint32_t a, uint32_t b) { return first_[a] < first_[b]; };
    // Registers are numbered as the code mentions them, so straight code is in order already.
    if (!std::is_sorted(order.begin(), order.end(), is_before))
      std::stable_sort(order.begin(), order.end(), is_before);
    // Registers that end at a position, as linked lists; the slot that was freed last is the next.
    std::vector<uint32_t>&ending_at = scratch_.ending_at, &next = scratch_.next;
    ending_at.assign(2 * insns_.size(), kNone);
    next.resize(std::max<size_t>(next.size(), fn_.num_registers));  // written before it is read
    auto ends = [&](uint32_t reg) {
      next[reg] = ending_at[last_[reg]];
      ending_at[last_[reg]] = reg;
    };
    std::vector<uint32_t> free_slots;
    for (uint32_t reg = num_params; reg-- > 0;) {
      if (first_[reg] == kNone) {
        free_slots.push_back(reg);
      } else {
        ends(reg);
      }
    }
    result_.num_slots = num_params;
    uint32_t position = 0;
    for (uint32_t reg : order) {
      for (; position < first_[reg]; ++position) {
        for (uint32_t r = ending_at[position]; r != kNone; r = next[r])
          free_slots.push_back(result_.slot[r]);
      }
      if (free_slots.empty()) free_slots.push_back(result_.num_slots++);
      result_.slot[reg] = free_slots.back();
      free_slots.pop_back();
      ends(reg);
    }
    for (LiveRange& range : ranges_) range.slot = result_.slot[range.slot];
    result_.live_ranges = std::move(ranges_);
  }

  LowFunction& fn_;
  std::vector<LowInsn>& insns_;
  LoadScratch& scratch_;
  Liveness result_;
  std::vector<Block> blocks_;
  std::vector<uint32_t>& block_of_;
  std::vector<uint32_t> global_;                            // register -> bit, or kNone
  std::vector<uint32_t> globals_;                           // bit -> register
  std::vector<std::pair<uint32_t, uint32_t>> first_reads_;  // block, bit
  size_t num_words_ = 0;
  std::vector<Word> in_;
  std::vector<uint32_t>&live_end_, &first_, &last_;  // by register
  std::vector<LiveRange> ranges_;                    // `slot` is a register
};

}  // namespace

Liveness ComputeLiveness(LowFunction* function, LoadScratch* scratch) {
  return Analysis(function, scratch).Run();
}

}  // namespace relaxvm::vm
