// SPDX-License-Identifier: Apache-2.0
// Options of passes: a row's Python signature gives names and defaults.
#pragma once

#include <string>

#include "pipeline/pipeline.h"

namespace relaxvm::pipeline {

// `given` with the defaults of `signature` ("max_depth: int = 256, skip_ops: list[str] = []")
// filled in.  Throws TypeError for an option that the pass does not have.
ffi::Map<ffi::String, ffi::Any> CompleteOptions(const std::string& pass,
                                                const std::string& signature,
                                                const ffi::Map<ffi::String, ffi::Any>& given);

// Throws ValueError that lists stages and passes when `stop_after` names neither.
void CheckStopAfter(const std::vector<std::string>& stages, const std::vector<std::string>& passes,
                    const std::string& stop_after);

}  // namespace relaxvm::pipeline
