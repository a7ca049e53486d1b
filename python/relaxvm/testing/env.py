# SPDX-License-Identifier: Apache-2.0
"""What this build and this machine have, for tests to skip by."""

from __future__ import annotations

from . import device_enabled


def has_llvm() -> bool:
    """Native code for CPUs; always."""
    return True


def has_cuda() -> bool:
    """A CUDA device that can be used."""
    return device_enabled("cuda")


def has_gpu() -> bool:
    """Any GPU that can be used."""
    return has_cuda()


def has_multi_gpu(count: int = 2) -> bool:
    """At least `count` GPUs."""
    from relaxvm.runtime.device import device, exists

    return has_gpu() and all(exists(device("cuda", i)) for i in range(count))


def _absent() -> bool:
    """Not part of this build."""
    return False


has_rocm = has_vulkan = has_metal = has_opencl = has_hexagon = has_hexagon_toolchain = _absent
has_adreno_opencl = has_cudnn = has_cublas = has_nccl = has_hipblas = has_nvshmem = _absent
has_matrixcore = has_cudagraph = has_nvptx = _absent
