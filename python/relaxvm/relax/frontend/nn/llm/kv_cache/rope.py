# SPDX-License-Identifier: Apache-2.0
"""Rotary position embedding: element pairs (a, b) of a head at position t turn by an angle t * f(pair).

    a' = a cos - b sin,   b' = b cos + a sin,   f(pair) = scale / theta^(2 pair / rotary size)

`scaling` bends f for contexts longer than those of training; it is the `rope_scaling` of a model's configuration."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from relaxvm import tirx
from relaxvm.tirx import const

from .program import VECTORIZED, Memory, Program, cast, lanes

Scaling = Mapping[str, Any]


def rope_type(scaling: Scaling | None) -> str:
    """The kind of scaling, checked."""
    kind = (scaling or {}).get("rope_type", (scaling or {}).get("type", "default"))
    if kind not in ("default", "gptj", "linear", "llama3", "yarn"):
        raise NotImplementedError(
            f"rope_type {kind!r} is not supported; use default, gptj, linear, llama3 or yarn"
        )
    return kind


def is_interleaved(scaling: Scaling | None) -> bool:
    """Whether pairs are neighbours, as in GPT-J; else the halves of a head."""
    return rope_type(scaling) == "gptj"


def _clip(value: Any) -> Any:
    return tirx.max(tirx.min(value, const(1.0, "float32")), const(0.0, "float32"))


def frequency(pair: Any, size: int, scale: Any, theta: Any, scaling: Scaling | None) -> Any:
    """f(pair), a float32 expression; `scale` and `theta` are float32 expressions."""
    exponent = cast("float32", pair) * const(2.0 / size, "float32")
    plain = scale * tirx.exp2(-exponent * tirx.log2(theta))
    kind = rope_type(scaling)
    if kind in ("default", "gptj"):
        return plain
    assert scaling is not None
    factor = float(scaling["factor"])
    if kind == "linear":
        return plain / const(factor, "float32")
    trained = float(scaling["original_max_position_embeddings"])
    if kind == "llama3":
        # Turns within the trained context: slow pairs are stretched, fast ones stay, others between.
        low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
        turns = plain * const(trained / (2 * math.pi), "float32")
        keep = _clip((turns - const(low, "float32")) / const(high - low, "float32"))
    else:
        # The pair that makes so many turns within the trained context, as a real number.
        def pair_of(turns: float) -> Any:
            wanted = tirx.log2(const(trained / (turns * 2 * math.pi), "float32"))
            return const(size / 2, "float32") * wanted / tirx.log2(theta)

        fast, slow = (
            pair_of(float(scaling.get("beta_fast", 32))),
            pair_of(float(scaling.get("beta_slow", 1))),
        )
        first = tirx.max(tirx.floor(fast), const(0.0, "float32"))
        last = tirx.min(tirx.ceil(slow), const(size - 1.0, "float32"))
        span = tirx.max(last - first, const(0.001, "float32"))
        keep = const(1.0, "float32") - _clip((cast("float32", pair) - first) / span)
    return plain * (keep + (const(1.0, "float32") - keep) / const(factor, "float32"))


def amplitude(scaling: Scaling | None) -> float:
    """What rotated elements are multiplied with: yarn makes long contexts a little louder."""
    if rope_type(scaling) != "yarn":
        return 1.0
    assert scaling is not None
    if "attention_factor" in scaling and scaling["attention_factor"] is not None:
        return float(scaling["attention_factor"])
    factor = float(scaling["factor"])
    return 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0


class Rotation:
    """Rotates rows of one program: frequencies are computed here, once."""

    def __init__(
        self, p: Program, size: int, scale: Any, theta: Any, scaling: Scaling | None
    ) -> None:
        if size % 2:
            raise ValueError(f"{size} elements cannot be rotated in pairs")
        self.p, self.pairs, self.width = p, size // 2, lanes(size // 2, 16)
        self.interleaved = is_interleaved(scaling)
        self.amplitude = amplitude(scaling)
        self.frequencies = p.local("frequencies", (self.pairs,))
        with p.loop("pair", self.pairs) as pair:
            self.frequencies[pair] = frequency(pair, size, scale, theta, scaling)

    def turn_to(self, position: Any) -> None:
        """Computes sines and cosines of a position, for the rows after it."""
        p = self.p
        self.cos, self.sin = p.local("cos", (self.pairs,)), p.local("sin", (self.pairs,))
        loud = const(self.amplitude, "float32")
        here = p.let("here", cast("float32", position))
        with (
            p.loop("block", self.pairs // self.width) as block,
            p.loop("lane", self.width, VECTORIZED) as lane,
        ):
            pair = block * self.width + lane
            self.cos[pair] = tirx.cos(here * self.frequencies[pair]) * loud
            self.sin[pair] = tirx.sin(here * self.frequencies[pair]) * loud

    def apply(self, load: Callable[[Any], Any], store: Callable[[Any, Any], None]) -> None:
        """store(i, value) gets what load(i), float32, becomes; for i below the rotary size."""
        p = self.p
        with (
            p.loop("block", self.pairs // self.width) as block,
            p.loop("lane", self.width, VECTORIZED) as lane,
        ):
            pair = block * self.width + lane
            first = pair * 2 if self.interleaved else pair
            second = pair * 2 + 1 if self.interleaved else pair + self.pairs
            a, b = p.let("a", load(first)), p.let("b", load(second))
            c, s = self.cos[pair], self.sin[pair]
            store(first, a * c - b * s)
            store(second, b * c + a * s)

    def rotate(self, position: Any, row: Memory, r: Any) -> None:
        """Rotates row r of a local buffer."""
        self.turn_to(position)
        self.apply(lambda i: row[r, i], lambda i, value: row.__setitem__((r, i), value))
