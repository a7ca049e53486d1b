# SPDX-License-Identifier: Apache-2.0
"""Runs a function of tensors on arrays."""

import relaxvm
from relaxvm import te


def run(function, *arrays):
    """What the function of tensors computes on the arrays: an array, or a list of them."""
    inputs = [te.placeholder(a.shape, a.dtype.name, f"p{i}") for i, a in enumerate(arrays)]
    given = function(*inputs)
    outputs = given if isinstance(given, list) else [given]
    program = relaxvm.compile(te.create_prim_func([*inputs, *outputs]))
    results = [relaxvm.runtime.empty([int(n) for n in t.shape], str(t.dtype)) for t in outputs]
    program(*map(relaxvm.runtime.tensor, arrays), *results)
    values = [r.numpy() for r in results]
    return values if isinstance(given, list) else values[0]
