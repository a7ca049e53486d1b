# SPDX-License-Identifier: Apache-2.0
"""Devices as objects, and functions of modules timed on them."""

import pytest

import relaxvm


def test_a_device_says_whether_it_exists():
    assert relaxvm.cpu().exist and relaxvm.runtime.tensor([1.0]).device.exist
    for make in (relaxvm.cuda, relaxvm.opencl, relaxvm.vulkan, relaxvm.metal, relaxvm.rocm):
        assert not make(0).exist
    assert isinstance(relaxvm.runtime.tensor([1.0]).device, relaxvm.Device)


def test_what_uses_an_absent_device_is_refused():
    relaxvm.cpu().sync()
    with pytest.raises(RuntimeError, match="use cpu"):
        relaxvm.cuda().sync()
    with pytest.raises(RuntimeError, match="use cpu"):
        relaxvm.runtime.empty((2,), "float32", relaxvm.opencl())
