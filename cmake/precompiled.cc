// SPDX-License-Identifier: Apache-2.0
// Nothing to compile: the target of this file owns the precompiled headers
// (src/support/precompiled.h).
