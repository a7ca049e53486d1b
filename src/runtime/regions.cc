// SPDX-License-Identifier: Apache-2.0
// Best fit; neighbours that are free become one piece at once.
#include "runtime/regions.h"

#include <algorithm>
#include <iterator>

namespace relaxvm::runtime {
int64_t Regions::Missing(size_t num_bytes) const {
  auto it = free_.lower_bound({num_bytes, nullptr});
  const size_t backed = it == free_.end() ? 0 : pieces_.at(it->second).backed;
  return static_cast<int64_t>(num_bytes - std::min(num_bytes, backed));
}

void* Regions::Take(size_t num_bytes) {
  auto it = free_.lower_bound({num_bytes, nullptr});
  if (it == free_.end()) return nullptr;
  auto at = pieces_.find(it->second);
  RemoveFree(at);
  Piece& piece = at->second;
  const size_t backed = std::min(piece.backed, num_bytes);
  if (piece.size > num_bytes) {
    const Piece rest{piece.size - num_bytes, piece.backed - backed, true, false};
    AddFree(pieces_.emplace(at->first + num_bytes, rest).first);
  }
  backed_bytes_ += static_cast<int64_t>(num_bytes - backed);
  piece = {num_bytes, num_bytes, false, piece.begins_region};
  return at->first;
}

void* Regions::Grow(size_t num_bytes, size_t alignment) {
  auto* data = static_cast<char*>(api_->Alloc(device_id_, num_bytes, alignment));
  if (data == nullptr) return nullptr;
  pieces_.emplace(data, Piece{num_bytes, num_bytes, false, true});
  backed_bytes_ += static_cast<int64_t>(num_bytes);
  return data;
}

void Regions::Free(void* data) {
  auto at = pieces_.find(static_cast<char*>(data));
  auto join = [&](Pieces::iterator first, Pieces::iterator second) {
    RemoveFree(second);
    first->second.size += second->second.size;
    first->second.backed += second->second.backed;
    pieces_.erase(second);
  };
  at->second.is_free = true;
  auto next = std::next(at);
  if (next != pieces_.end() && next->second.is_free && !next->second.begins_region) join(at, next);
  if (!at->second.begins_region && std::prev(at)->second.is_free) {
    auto before = std::prev(at);
    RemoveFree(before);
    before->second.size += at->second.size;
    before->second.backed += at->second.backed;
    pieces_.erase(at);
    at = before;
  }
  AddFree(at);
}

void Regions::Trim(int64_t keep_bytes) {
  for (auto it = free_.end(); it != free_.begin() && free_backed_bytes_ > keep_bytes;) {
    --it;
    auto at = pieces_.find(it->second);
    Piece& piece = at->second;
    const auto backed = static_cast<int64_t>(piece.backed);
    if (IsWholeRegion(at)) {
      it = free_.erase(it);
      api_->Free(device_id_, at->first, piece.size, nullptr);
      pieces_.erase(at);
    } else if (backed == 0 || !api_->Discard(device_id_, at->first, piece.size)) {
      continue;
    } else {
      piece.backed = 0;
    }
    backed_bytes_ -= backed;
    free_backed_bytes_ -= backed;
  }
}

void Regions::AddFree(Pieces::iterator at) {
  free_.emplace(at->second.size, at->first);
  free_backed_bytes_ += static_cast<int64_t>(at->second.backed);
}

void Regions::RemoveFree(Pieces::iterator at) {
  free_.erase({at->second.size, at->first});
  free_backed_bytes_ -= static_cast<int64_t>(at->second.backed);
}

bool Regions::IsWholeRegion(Pieces::const_iterator at) const {
  auto next = std::next(at);
  return at->second.begins_region && (next == pieces_.end() || next->second.begins_region);
}

}  // namespace relaxvm::runtime
