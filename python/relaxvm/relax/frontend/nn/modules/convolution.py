# SPDX-License-Identifier: Apache-2.0
"""Convolutions as modules."""

from __future__ import annotations

from collections.abc import Sequence

from .. import op
from ..module import Module
from ..tensor import Parameter, Tensor


def _spread(value: int | Sequence[int], count: int) -> list[int]:
    return [value] * count if isinstance(value, int) else list(value)


class _Convolution(Module):
    """Weight and bias of a convolution over `rank` dimensions."""

    def __init__(
        self,
        rank: int,
        channels: tuple[int, int],
        kernel_size: int | Sequence[int],
        groups: int,
        bias: bool,
        dtype: str | None,
    ) -> None:
        self.in_channels, self.out_channels = channels
        self.kernel_size = kernel_size
        self.groups = groups
        kernel = _spread(kernel_size, rank)
        self.weight = Parameter((channels[1], channels[0] // groups, *kernel), dtype)
        self.bias = Parameter((channels[1],), dtype) if bias else None


class Conv1D(_Convolution):
    """A convolution of (n, in_channels, width)."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: str | None = None,
    ) -> None:
        super().__init__(1, (in_channels, out_channels), kernel_size, groups, bias, dtype)
        self.stride, self.padding, self.dilation = stride, padding, dilation

    def forward(self, x: Tensor) -> Tensor:
        return op.conv1d(
            x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
        )


class Conv2D(_Convolution):
    """A convolution of an image in `data_layout`."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: list[int] | int,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: str | None = None,
        data_layout: str = "NCHW",
    ) -> None:
        super().__init__(2, (in_channels, out_channels), kernel_size, groups, bias, dtype)
        self.stride, self.padding, self.dilation = stride, padding, dilation
        self.data_layout = data_layout

    def forward(self, x: Tensor) -> Tensor:
        return op.conv2d(
            x,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
            self.data_layout,
        )


class Conv3D(_Convolution):
    """A convolution of a volume in `data_layout`."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: list[int] | int,
        stride: list[int] | int = 1,
        padding: list[int] | int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: str | None = None,
        data_layout: str = "NCDHW",
    ) -> None:
        super().__init__(3, (in_channels, out_channels), kernel_size, groups, bias, dtype)
        self.stride, self.padding = _spread(stride, 3), _spread(padding, 3)
        self.dilation, self.data_layout = dilation, data_layout

    def forward(self, x: Tensor) -> Tensor:
        return op.conv3d(
            x,
            self.weight,
            self.bias,
            tuple(self.stride),
            tuple(self.padding),
            self.dilation,
            self.groups,
            self.data_layout,
        )


class ConvTranspose1D(Module):
    """A transposed convolution of (n, in_channels, width); weight is (in_channels, out_channels / groups, kernel)."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        output_padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: str | None = None,
    ) -> None:
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.output_padding, self.dilation, self.groups = output_padding, dilation, groups
        self.weight = Parameter((in_channels, out_channels // groups, kernel_size), dtype)
        self.bias = Parameter((out_channels,), dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return op.conv1d_transpose(
            x,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self.output_padding,
            self.dilation,
            self.groups,
        )
