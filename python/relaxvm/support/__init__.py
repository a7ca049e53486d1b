# SPDX-License-Identifier: Apache-2.0
"""Small things that programs written for TVM import."""
