# SPDX-License-Identifier: Apache-2.0
"""Programs that draw random numbers, and how the numbers are spread."""

from __future__ import annotations

import math

import torch

COUNT = 1 << 14
X = torch.linspace(-2, 2, 4).repeat(COUNT // 4, 1)  # [COUNT / 4, 4]
like = torch.empty_like

# program -> mean, standard deviation, least and greatest possible value
SPREADS = {
    "rand": (lambda x: torch.rand(COUNT), 0.5, 12**-0.5, 0, 1),
    "rand of float64": (lambda x: torch.rand(COUNT, dtype=torch.float64), 0.5, 12**-0.5, 0, 1),
    "rand_like": (lambda x: torch.rand_like(x), 0.5, 12**-0.5, 0, 1),
    "randn": (lambda x: torch.randn(COUNT), 0, 1, -8, 8),
    "randn of float16": (lambda x: torch.randn(COUNT, dtype=torch.float16), 0, 1, -8, 8),
    "randn_like": (lambda x: torch.randn_like(x), 0, 1, -8, 8),
    "randint": (lambda x: torch.randint(3, 10, (COUNT,)), 6, 2, 3, 9),
    "randint_like": (lambda x: torch.randint_like(x, 5), 2, 2**0.5, 0, 4),
    "randint_like from": (lambda x: torch.randint_like(x, 3, 10), 6, 2, 3, 9),
    "normal of numbers": (lambda x: torch.normal(1.0, 3.0, (COUNT,)), 1, 3, -23, 25),
    "normal around": (lambda x: torch.normal(0 * x, 2.0), 0, 2, -16, 16),
    "normal of widths": (lambda x: torch.normal(1.0, 0 * x + 2), 1, 2, -15, 17),
    "normal_": (lambda x: like(x).normal_(1, 3), 1, 3, -23, 25),
    "uniform_": (lambda x: like(x).uniform_(2, 4), 3, 3**-0.5, 2, 4),
    "exponential_": (lambda x: like(x).exponential_(2.0), 0.5, 0.5, 0, 10),
    "geometric_": (lambda x: like(x).geometric_(0.5), 2, 2**0.5, 1, 30),
    "bernoulli": (lambda x: torch.bernoulli(0 * x + 0.25), 0.25, 0.1875**0.5, 0, 1),
    "bernoulli p": (lambda x: torch.bernoulli(x, 0.25), 0.25, 0.1875**0.5, 0, 1),
    "bernoulli_": (lambda x: like(x).bernoulli_(0.25), 0.25, 0.1875**0.5, 0, 1),
    "log of log_normal_": (lambda x: like(x).log_normal_(1, 2).log(), 1, 2, -15, 17),
    "atan of cauchy_": (lambda x: like(x).cauchy_().atan(), 0, math.pi / 12**0.5, -1.58, 1.58),
    "multinomial": (
        lambda x: torch.multinomial(0 * x[:1, :1] + torch.tensor([0.0, 1, 3, 0]), COUNT, True),
        1.75,
        0.1875**0.5,
        1,
        2,
    ),
    "in a branch": (
        lambda x: torch.cond(x.mean() < 1, torch.randn_like, lambda x: x + 9, (x,)),
        0,
        1,
        -8,
        8,
    ),
}
