# SPDX-License-Identifier: Apache-2.0
"""Programs whose sizes are open give what PyTorch gives at sizes other than those of the export."""

from __future__ import annotations

import math

import pytest

pytestmark = pytest.mark.peer


def cases() -> dict:
    """Name -> function, shape of the export, another shape, the axes that are open."""
    import torch
    import torch.nn.functional as F

    resize = lambda mode: lambda x: F.interpolate(x, scale_factor=(0.5, 1.5), mode=mode)
    aligned = lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear", align_corners=True)

    def cut(x):
        """max(64 - n, 0) is 64 - n for every size that is allowed."""
        table = torch.arange(64.0)[max(0, 64 - x.shape[1]) :]
        return x + table

    def same(x):
        """TensorFlow's padding, whose sizes are real numbers on the way."""
        pads = [max(0, (math.ceil(n / 2) - 1) * 2 + 3 - n) for n in x.shape[2:]]
        return F.pad(x, [pads[1] // 2, pads[1] - pads[1] // 2, 0, pads[0]])

    def framed(x):
        """Pixels are added along one axis and cut off along the other, or the other way round."""
        more = x.shape[2] - x.shape[3]
        return F.pad(x, [more // 2, more - more // 2, -more // 2, 0], value=2.0)

    def parts(x):
        n, m = x.shape
        cut = (
            round(n / 2),
            math.floor(n / 2 + 0.75),
            torch.sym_int(m / 3 * 2),
            math.ceil((n + m) / 3),
        )
        return tuple(x.sum() + torch.ones(k) for k in cut)

    fourier = lambda x: (torch.fft.fft(x).real, torch.fft.rfft(x).abs())
    image, other = (1, 3, 8, 9), (1, 3, 15, 7)
    found = {mode: (resize(mode), image, other, (2, 3)) for mode in ("nearest", "bilinear", "bicubic", "nearest-exact")}  # fmt: skip
    return {
        **found,
        "enlarged": (
            lambda x: F.interpolate(x, size=(16, 17), mode="bicubic"),
            image,
            other,
            (2, 3),
        ),
        "tenths": (
            lambda x: F.interpolate(x, scale_factor=(0.6, 1.7), mode="bilinear"),
            image,
            other,
            (2, 3),
        ),
        "aligned": (aligned, image, other, (2, 3)),
        "adaptive_max": (lambda x: F.adaptive_max_pool2d(x, 1), image, other, (2, 3)),
        "adaptive_max_of_some": (lambda x: F.adaptive_max_pool2d(x, (2, 3)), image, other, (2, 3)),
        "nonzero_static": (lambda x: torch.nonzero_static(x > 0, size=4), (5, 3), (8, 3), (0,)),
        "diagonal": (lambda x: torch.diagonal(x, 1, 1, 2), (2, 4, 5), (2, 4, 9), (2,)),
        "windows": (lambda x: x.unfold(1, 3, 1), (2, 7), (2, 9), (1,)),
        "median": (lambda x: (x.median(0), x.median()), (5, 3), (8, 3), (0,)),
        "any": (lambda x: (x > 9).any(0), (5, 3), (8, 3), (0,)),
        "same": (same, image, other, (2, 3)),
        "framed": (framed, image, other, (2, 3)),
        "parts": (parts, (4, 7), (5, 12), (0, 1)),
        "cut": (cut, (2, 8), (2, 11), (1,)),
        "fourier": (fourier, (2, 8), (2, 11), (1,)),
    }


NAMES = "nearest bilinear bicubic nearest-exact enlarged tenths aligned adaptive_max adaptive_max_of_some nonzero_static diagonal windows median any cut same framed parts fourier".split()  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_agrees_at_another_size(name, run_module, agree):
    import torch

    import relaxvm
    from relaxvm.relax.frontend.torch import from_exported_program

    from .programs import exported

    function, shape, other, axes = cases()[name]
    dims = {i: torch.export.Dim(f"d{i}", min=4, max=63) for i in axes}
    program = exported(function, (torch.randn(shape),), dynamic_shapes=((dims,),))
    for core in (False, True):
        module = from_exported_program(program, run_ep_decomposition=core)
        executable = relaxvm.compile(module, num_threads=1)
        for size in (shape, other):
            x = torch.randn(size)
            assert not agree(run_module(executable, x), function(x)), f"core operators: {core}"


def _best_boxes(boxes, scores, limit):
    """The definition: from the best on, those that overlap no kept one by more than `limit`."""
    import torch

    kept = []
    for i in scores.argsort(descending=True).tolist():
        for k in kept:
            low, high = torch.maximum(boxes[i, :2], boxes[k, :2]), torch.minimum(boxes[i, 2:], boxes[k, 2:])  # fmt: skip
            both = (high - low).clamp(min=0).prod()
            area = lambda j: (boxes[j, 2:] - boxes[j, :2]).prod()
            if both / (area(i) + area(k) - both) > limit:
                break
        else:
            kept.append(i)
    return torch.tensor(kept)


@pytest.mark.parametrize("factor", [0.6, 1.7, 1 / 3, 2.2, 0.9, 1.1])
def test_a_size_times_a_decimal_fraction_is_rounded_as_in_float64(factor):
    from relaxvm.relax.frontend.torch.symbols import _simple

    fraction = _simple(factor)
    for n in [*range(1, 5000), (1 << 30) - 1, 10**9, 3 * 10**8]:
        assert math.floor(n * factor) == n * fraction.numerator // fraction.denominator


def test_a_factor_whose_multiples_fall_below_whole_numbers_is_not_taken_for_a_fraction():
    from relaxvm.relax.frontend.torch.symbols import _simple

    assert math.floor(90 * 0.7) == 62
    assert _simple(0.7) is None


@pytest.fixture
def nms():
    """torchvision's operator, or one of its name and meaning where torchvision is not installed."""
    import torch

    if hasattr(torch.ops.torchvision, "nms"):
        return torch.ops.torchvision.nms
    name = "torchvision::nms"
    torch.library.define(name, "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    torch.library.impl(name, "cpu", _best_boxes)

    @torch.library.register_fake(name)
    def fake(boxes, scores, limit):
        return scores.new_empty([torch.library.get_ctx().new_dynamic_size()], dtype=torch.int64)

    return torch.ops.torchvision.nms


def test_boxes_that_no_better_one_covers(nms, run_module, agree):
    import torch

    import relaxvm

    from .programs import exported

    f = lambda boxes, scores: nms(boxes, scores, 0.5)
    torch.manual_seed(0)
    corners = torch.rand(9, 2)
    inputs = torch.cat([corners, corners + torch.rand(9, 2) + 0.2], 1), torch.rand(9)
    want = _best_boxes(*inputs, 0.5)
    assert 1 < len(want) < 9
    executable = relaxvm.compile(exported(f, inputs), num_threads=1)
    assert not agree(run_module(executable, *inputs), want)


def test_none_and_texts_keep_their_place():
    import torch

    import relaxvm

    from .programs import exported

    executable = relaxvm.compile(exported(lambda x: (x + 1, None, "text", 3), (torch.ones(2),)))
    x = relaxvm.runtime.tensor(torch.ones(2).numpy())
    first, none, text, number = relaxvm.VirtualMachine(executable, relaxvm.cpu())["main"](x)
    assert first.numpy().tolist() == [2, 2] and none is None and text == "text" and int(number) == 3


def test_complex_inputs_and_results_are_refused():
    import torch

    from relaxvm.relax.frontend.torch import UnsupportedProgram, from_exported_program

    from .programs import exported

    x = torch.ones(2, dtype=torch.complex64)
    with pytest.raises(UnsupportedProgram, match="input inputs_0 is complex; take torch.view_as"):
        from_exported_program(exported(lambda x: x.real + 1, (x,)))
    with pytest.raises(UnsupportedProgram, match="result is complex; return torch.view_as_real"):
        from_exported_program(exported(lambda x: torch.complex(x, x), (torch.ones(2),)))
    with pytest.raises(UnsupportedProgram, match=r"asin.*of complex tensors; made by"):
        from_exported_program(exported(lambda x: torch.complex(x, x).asin().real, (torch.ones(2),)))
