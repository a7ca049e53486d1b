// SPDX-License-Identifier: Apache-2.0
// What the attention programs are told of one forward: int32 arrays over its sequences and tokens.
#pragma once

#include <tvm/ffi/container/tensor.h>

#include <vector>

#include "vm/kv/page_table.h"

namespace relaxvm::vm::kv {

// The keys that a token may see, for each sequence b of the batch.
//   pages:  values[indptr[b]] to values[indptr[b + 1]]
//   length: the slots in use of the last page; with holes three rows: that, the slot after the
//           hole, and the tokens before it
//   offset: the position of the first key
struct PageLists {
  tvm::ffi::Tensor indptr{tvm::ffi::UnsafeInit()}, values{tvm::ffi::UnsafeInit()},
      length{tvm::ffi::UnsafeInit()}, offset{tvm::ffi::UnsafeInit()};
};

struct ForwardOptions {
  bool has_holes;        // lengths have three rows
  int64_t layer_window;  // of layers that see so many tokens; 0: there are none
};

struct Forward {
  std::vector<Append> appends;
  int64_t num_tokens = 0;
  bool is_decode = false;     // one token a sequence, no trees
  bool is_tree = false;       // some token does not follow the one before it
  bool is_whole_tree = true;  // no tree began in an earlier forward

  tvm::ffi::Tensor query_indptr{tvm::ffi::UnsafeInit()};  // [batch + 1]
  tvm::ffi::Tensor positions{tvm::ffi::UnsafeInit()};     // of each token
  tvm::ffi::Tensor slots{tvm::ffi::UnsafeInit()};         // page * page_size + slot of each token
  tvm::ffi::Tensor first{tvm::ffi::UnsafeInit()};  // position of each sequence's first new token
  PageLists all;                                   // tokens of earlier forwards and of this one
  PageLists before;                                // of earlier forwards; in a decode all
  PageLists in_window;                             // those in a layer's window
  // A token sees an ancestor j when order[j][0] <= order[i][0] < order[j][1].
  tvm::ffi::Tensor tree_indptr{tvm::ffi::UnsafeInit()}, tree_order{tvm::ffi::UnsafeInit()};
};

// After room was reserved for these tokens.
Forward MakeForward(PageTable* table, std::vector<Append> appends, const ForwardOptions& options);

}  // namespace relaxvm::vm::kv
