# SPDX-License-Identifier: Apache-2.0
"""Partitions for libraries on NVIDIA devices: which calls of a graph such a library takes."""
