// SPDX-License-Identifier: Apache-2.0
// RELAXVM_API marks what leaves a library.
#pragma once

#define RELAXVM_API __attribute__((visibility("default")))
