# SPDX-License-Identifier: Apache-2.0
"""The next token from probabilities.

With probabilities in falling order, a token is kept while those before it add up to less than top_p and there are
fewer than top_k of them; the first token is always kept."""

from __future__ import annotations

import numpy as np

from relaxvm.relax import op
from relaxvm.relax.expr import const

from ..tensor import Tensor, expr_of, wrap_nested
from .create import arange
from .elementwise import astype, divide, greater_equal, less, where
from .movement import reshape, take
from .reductions import cumsum, sum


def multinomial_from_uniform(
    prob: Tensor,
    uniform_sample: Tensor,
    sample_indices: Tensor | None = None,
    dtype: str = "int64",
    name: str = "multinomial_from_uniform",
) -> Tensor:
    """One index for each row of `uniform_sample` (n, 1) in [0, 1): the first at which the running sum of `prob`
    exceeds it.

    `sample_indices` (n, 1) names the row of `prob`; None: each its own.
    """
    rows = _own_rows(prob) if sample_indices is None else sample_indices
    call = op.multinomial_from_uniform(
        expr_of(prob), expr_of(uniform_sample), expr_of(rows), dtype=dtype
    )
    return wrap_nested(call, name)


def sample_top_p_top_k_from_sorted_prob(
    sorted_prob: Tensor,
    sorted_index: Tensor,
    top_p: Tensor,
    top_k: Tensor,
    uniform_sample: Tensor,
    sample_indices: Tensor | None = None,
) -> Tensor:
    """Samples among the kept tokens: (n, 1) of int32.

    `sorted_prob` and `sorted_index` (rows, tokens) are in falling order, `top_p` and `top_k` (rows, 1);
    `uniform_sample` (n, 1) and the rows that it is for, `sample_indices` (n, 1), as in multinomial_from_uniform.
    """
    running = cumsum(sorted_prob, 1)
    total = _at(running, _last_kept(running, top_p, top_k))
    rows = _own_rows(sorted_prob) if sample_indices is None else sample_indices
    flat = reshape(rows, [rows.shape[0]])
    share = divide(take(running, flat, 0), take(total, flat, 0))
    below = _count(greater_equal(uniform_sample, _without_last(share)))
    return astype(_at(take(sorted_index, flat, 0), below), "int32")


def renormalize_top_p_top_k_prob(
    prob: Tensor, sorted_prob: Tensor, top_p: Tensor, top_k: Tensor
) -> Tensor:
    """`prob` (rows, tokens) with the tokens that are not kept set to 0, and a sum of 1.

    `sorted_prob` is `prob` in falling order; `top_p` and `top_k` are (rows, 1).
    """
    running = cumsum(sorted_prob, 1)
    cutoff = _at(sorted_prob, _last_kept(running, top_p, top_k))
    kept = where(greater_equal(prob, cutoff), prob, Tensor.from_scalar(0.0, prob.dtype))
    return divide(kept, sum(kept, 1, keepdims=True))


def _last_kept(running: Tensor, top_p: Tensor, top_k: Tensor) -> Tensor:
    """The index of the last token that is kept, from running sums in falling order: (rows, 1)."""
    inner = _without_last(running)
    number = arange(1, inner.shape[1] + 1, dtype="int32")
    in_sum, in_number = less(inner, top_p), less(number, astype(top_k, "int32"))
    both = wrap_nested(op.logical_and(expr_of(in_sum), expr_of(in_number)), "goes_on")
    return _count(both)


def _without_last(x: Tensor) -> Tensor:
    """Columns but the last: counting over them gives an index that exists."""
    columns = x.shape[1] - 1
    return wrap_nested(op.strided_slice(expr_of(x), [1], [0], [columns]), "inner")


def _count(conditions: Tensor) -> Tensor:
    return sum(astype(conditions, "int32"), 1, keepdims=True)


def _at(x: Tensor, index: Tensor) -> Tensor:
    return wrap_nested(op.gather_elements(expr_of(x), expr_of(index), axis=1), "picked")


def _own_rows(prob: Tensor) -> Tensor:
    rows = prob.shape[0]
    if isinstance(rows, int):
        return Tensor(_expr=const(np.arange(rows).reshape(rows, 1), "int64"))
    return reshape(arange(0, rows, dtype="int64"), [rows, 1])
