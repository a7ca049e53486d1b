# SPDX-License-Identifier: Apache-2.0
"""A page with the kernels of a run and their roofline (Williams, Waterman, Patterson 2009), in one file."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

from .limits import Limits

_WIDTH, _HEIGHT, _MARGIN = 860, 480, 60

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font: 15px/1.4 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #222 }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums }}
td, th {{ padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #ddd }}
td:first-child, th:first-child {{ text-align: left; font-family: ui-monospace, monospace; overflow-wrap: anywhere }}
tr.far td {{ background: #fff0e6 }}
svg text {{ font: 12px system-ui, sans-serif; fill: #444 }}
</style>
</head>
<body>
<h1>{title}</h1>
<p>{summary}</p>
{picture}
<p>One circle a kernel, its area the share of the time; the line is what this machine can do at most, a dashed one
where products of other dtypes end. Kernels far from theirs are orange.</p>
<table>
<thead>
<tr><th>kernel</th><th>calls</th><th>&micro;s</th><th>share</th><th>GFLOP/s</th><th>GB/s</th><th>of limit</th></tr>
</thead>
<tbody>
{rows}
</tbody>
</table>
</body>
</html>
"""


def page(model: str, kernels: Sequence[Any], limits: Limits, total_us: float) -> str:
    """The page as text; it loads nothing."""
    far = sum(k.share for k in kernels if k.is_far)
    return _PAGE.format(
        title=html.escape(model),
        summary=f"One run takes {total_us / 1e3:.3f} ms on {limits.threads} threads. This machine reaches "
        f"{limits.text()}. "
        f"{far:.0%} of the time is spent in kernels that are far from these limits.",
        picture=_picture(kernels, limits),
        rows="\n".join(map(_row, kernels)),
    )


def _row(k: Any) -> str:
    cells = (
        html.escape(k.name),
        str(k.calls),
        f"{k.time_us:.1f}",
        f"{k.share:.1%}",
        f"{k.gflop_per_s:.1f}",
        f"{k.gb_per_s:.1f}",
        f"{k.of_limit:.0%}",
    )
    start = '<tr class="far">' if k.is_far else "<tr>"
    return f"{start}{''.join(f'<td>{c}</td>' for c in cells)}</tr>"


def _picture(kernels: Sequence[Any], limits: Limits) -> str:
    shown = [k for k in kernels if k.flop_per_byte > 0 and k.gflop_per_s > 0]
    roofs = {"": limits.gflop_per_s, **limits.products}
    ridge = limits.gflop_per_s / limits.gb_per_s
    low_x = min([k.flop_per_byte for k in shown] + [ridge / 100])
    high_x = max([k.flop_per_byte for k in shown] + [max(roofs.values()) / limits.gb_per_s * 10])
    low_y = min([k.gflop_per_s for k in shown] + [limits.gb_per_s * low_x])
    high_y = max(roofs.values()) * 1.5

    def x(value: float) -> float:
        part = math.log(value / low_x) / math.log(high_x / low_x)
        return _MARGIN + part * (_WIDTH - 2 * _MARGIN)

    def y(value: float) -> float:
        part = math.log(value / low_y) / math.log(high_y / low_y)
        return _HEIGHT - _MARGIN - part * (_HEIGHT - 2 * _MARGIN)

    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="100%" role="img">']
    for tick in _powers(low_x, high_x):
        parts.append(_line(x(tick), y(low_y), x(tick), y(high_y), "#eee"))
        parts.append(f'<text x="{x(tick):.0f}" y="{y(low_y) + 18:.0f}">{tick:g}</text>')
    for tick in _powers(low_y, high_y):
        parts.append(_line(x(low_x), y(tick), x(high_x), y(tick), "#eee"))
        parts.append(f'<text x="8" y="{y(tick) + 4:.0f}">{tick:g}</text>')
    for dtype, rate in roofs.items():
        ridge = rate / limits.gb_per_s
        roof = f"M{x(low_x):.1f},{y(limits.gb_per_s * low_x):.1f} L{x(ridge):.1f},{y(rate):.1f} "
        roof += f"L{x(high_x):.1f},{y(rate):.1f}"
        dashes = ' stroke-dasharray="6 4"' if dtype else ""
        parts.append(f'<path d="{roof}" fill="none" stroke="#333" stroke-width="2"{dashes}/>')
        parts.append(
            f'<text x="{x(high_x):.1f}" y="{y(rate) - 6:.1f}" text-anchor="end">{dtype or "float32"}</text>'
        )
    for k in shown:
        radius = 3 + 30 * math.sqrt(max(k.share, 0))
        color = "#e8700a" if k.is_far else "#2a6fb0"
        label = html.escape(f"{k.name}: {k.time_us:.1f} us, {k.of_limit:.0%} of the limit")
        parts.append(
            f'<circle cx="{x(k.flop_per_byte):.1f}" cy="{y(k.gflop_per_s):.1f}" r="{radius:.1f}" '
            f'fill="{color}" fill-opacity=".45" stroke="{color}"><title>{label}</title></circle>'
        )
    parts.append(
        f'<text x="{_WIDTH - 12}" y="{_HEIGHT - 12}" text-anchor="end">operations per byte moved</text>'
    )
    parts.append('<text x="8" y="20">GFLOP/s</text></svg>')
    return "\n".join(parts)


def _line(x0: float, y0: float, x1: float, y1: float, color: str) -> str:
    return f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" stroke="{color}"/>'


def _powers(low: float, high: float) -> list[float]:
    """The powers of ten between two numbers."""
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    return [10.0**n for n in range(first, last + 1)]
