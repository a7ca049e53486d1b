# SPDX-License-Identifier: Apache-2.0
"""The first layer of encoders (com.microsoft): embeddings added up and normalised."""

from __future__ import annotations

from relaxvm.relax import op

from ..errors import InvalidModel
from ..graph import Graph
from ..registry import Expr, onnx_op


@onnx_op("EmbedLayerNormalization", since=1, domain="com.microsoft")
def embed_layer_normalization(
    g: Graph,
    ids: Expr,
    segments: Expr | None = None,
    words: Expr | None = None,
    positions: Expr | None = None,
    segment_table: Expr | None = None,
    gamma: Expr | None = None,
    beta: Expr | None = None,
    mask: Expr | None = None,
    position_ids: Expr | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 1,
) -> tuple:
    if words is None or positions is None or gamma is None or beta is None:
        raise InvalidModel("word and position embeddings, gamma and beta are needed")
    batch, length = g.shape(ids)
    total = op.take(words, ids, axis=0)
    if position_ids is None:
        place = g.emit(
            op.strided_slice(positions, axes=[0], begin=[0], end=[length], assume_inbound=True)
        )
        total = g.emit(op.add(*g.agree(total, op.expand_dims(place, axis=[0]))))
    else:
        total = g.emit(op.add(*g.agree(total, op.take(positions, position_ids, axis=0))))
    if segment_table is not None:
        total = g.emit(op.add(*g.agree(total, op.take(segment_table, segments, axis=0))))
    total, gamma = g.agree(total, gamma)
    total, beta = g.agree(total, beta)
    y = op.nn.layer_norm(total, gamma, beta, axes=[-1], epsilon=epsilon)
    if mask is None:
        index = op.zeros([batch], "int32")
    else:
        index = op.astype(op.sum(op.astype(mask, "int32"), axis=[1]), "int32")
    return y, index, total
