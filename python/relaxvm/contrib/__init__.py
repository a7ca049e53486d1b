# SPDX-License-Identifier: Apache-2.0
"""Names of TVM's contrib package that programs import; what stands behind them is our own."""
