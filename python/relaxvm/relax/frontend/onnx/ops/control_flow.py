# SPDX-License-Identifier: Apache-2.0
"""If: the branches of a condition that is known at import are imported in place, others become the VM's."""

from __future__ import annotations

from ..graph import Graph
from ..registry import Subgraph, onnx_op
from ..subgraphs import (
    RanksDiffer,
    emit_if,
    joined_outputs,
    leaf_rows,
    outputs_of,
    ranks_differ,
    walked,
)
from ..values import Known, Value


@onnx_op("If", since=1)
def if_(g: Graph, condition: Value, *, then_branch: Subgraph, else_branch: Subgraph) -> tuple:
    """Outputs that are known at import and equal in both branches stay known."""
    branches = (then_branch, else_branch)
    if isinstance(condition, Known) and condition.is_constant:
        return tuple(outputs_of(g, branches[0] if condition.array.all() else branches[1]))
    bodies = [walked(g, lambda b=b: outputs_of(g, b)) for b in branches]
    if ranks_differ(leaf_rows(joined_outputs(g, bodies))):
        raise RanksDiffer(condition, branches)
    return tuple(emit_if(g, g.as_expr(condition, "cond"), bodies))
