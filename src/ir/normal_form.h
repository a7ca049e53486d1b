// SPDX-License-Identifier: Apache-2.0
// How far BlockBuilder goes when it brings calls into normal form.
#pragma once

namespace relaxvm::ir {

// While one lives, this thread's builders leave calls as they were written: the operators' own
// rules (OpObj::normalize) do not run.  For scripts, which state a program as it is.
class CallsAsWritten {
 public:
  CallsAsWritten();
  ~CallsAsWritten();
  CallsAsWritten(const CallsAsWritten&) = delete;
  CallsAsWritten& operator=(const CallsAsWritten&) = delete;
  static bool Active();
};

}  // namespace relaxvm::ir
