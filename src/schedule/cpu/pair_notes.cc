// SPDX-License-Identifier: Apache-2.0
// WithoutNotes: counts what the notes of panels say.
#include "schedule/cpu/pair_notes.h"

namespace relaxvm::schedule::cpu {
namespace {

// One block of so many has to keep to 16 bits: asking for each costs a twentieth, and saves a
// quarter of those that do.
constexpr int64_t kOneOf = 4;

class NotesRemover : public tir::StmtMutator {
 public:
  ffi::Array<int64_t> found;  // the annotation

  Stmt MutateSBlock(const tir::SBlock& block) override {
    if (block->annotations.find(kPairNotes) == block->annotations.end())
      return StmtMutator::MutateSBlock(block);
    found = ir::GetAttr<ffi::Array<int64_t>>(block->annotations, kPairNotes, {});
    auto copy = ffi::make_object<tir::SBlockObj>(*block.get());
    copy->annotations.erase(kPairNotes);
    return ir::NodeRef<tir::SBlock>(std::move(copy));
  }
};

}  // namespace

std::optional<PrimFunc> WithoutNotes(const PackedOperand& operand, const ffi::Tensor& panels) {
  NotesRemover remover;
  auto copy = ffi::make_object<tir::PrimFuncObj>(*operand.program.get());
  copy->body = remover.Mutate(operand.program->body);
  if (remover.found.empty()) return std::nullopt;
  const int64_t groups = remover.found[0], blocks = groups / remover.found[1];
  const int64_t dim = remover.found[2], row = panels.size(-2) * panels.size(-1);
  int64_t outer = 1, inner = 1;
  for (int64_t d = 0; d < panels.ndim() - 2; ++d) (d < dim ? outer : inner) *= panels.size(d);
  const int64_t depth = panels.size(dim);
  inner /= depth;
  const auto* data = static_cast<const int8_t*>(panels.data_ptr());
  int64_t keep = 0;
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) {
      for (int64_t b = 0; b < blocks; ++b)
        keep += data[((o * depth + groups + b / row) * inner + i) * row + b % row] == 0;
    }
  }
  if (keep * kOneOf >= outer * inner * blocks) return std::nullopt;
  return ir::NodeRef<PrimFunc>(std::move(copy));
}

}  // namespace relaxvm::schedule::cpu
