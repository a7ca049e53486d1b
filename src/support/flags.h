// SPDX-License-Identifier: Apache-2.0
// Environment variables; rows of flags.def.
#pragma once

#include <string>
#include <vector>

namespace relaxvm {

enum class Flag {
#define FLAG(id, variable, type, default_value, doc) k##id,
#include "support/flags.def"
#undef FLAG
};

// The variable's value, or the row's default when it is not set.
std::string FlagText(Flag flag);
// Set to something else than "", "0", "false" or "off".
bool FlagIsOn(Flag flag);
// The value split at commas, without empty parts.
std::vector<std::string> FlagList(Flag flag);

// Variables of this process that begin with RELAXVM_ and are in no row: typing errors.
std::vector<std::string> UnknownFlags();

}  // namespace relaxvm
