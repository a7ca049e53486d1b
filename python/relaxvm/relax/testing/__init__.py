# SPDX-License-Identifier: Apache-2.0
"""What tests of Relax programs use."""
