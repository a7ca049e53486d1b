# SPDX-License-Identifier: Apache-2.0
"""Helpers for tests."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .utils import check_numerical_grads as check_numerical_grads


def main() -> None:
    """Runs the tests of the calling file."""
    import pytest

    file = sys._getframe(1).f_globals["__file__"]
    sys.exit(pytest.main([file, *sys.argv[1:]]))


def assert_allclose(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 1e-7) -> None:
    """Arrays or tensors that agree up to rounding."""
    left, right = (v.numpy() if hasattr(v, "numpy") else v for v in (actual, desired))
    np.testing.assert_allclose(left, right, rtol=rtol, atol=atol, verbose=True)


def device_enabled(target: Any) -> bool:
    """Whether this build and this machine can run what is compiled for a target ("llvm", "cuda")."""
    from relaxvm.runtime.device import device, exists

    kind = str(target).split(" ", 1)[0]
    try:
        return exists(device(kind))
    except ValueError:  # no such kind of device
        return False


def parameter(*values: Any, ids: Any = None, by_dict: Any = None) -> Any:
    """A fixture with these values: `dtype = parameter("float32", "int32")`."""
    import pytest

    if by_dict is not None:
        ids, values = list(by_dict), tuple(by_dict.values())

    @pytest.fixture(params=values, ids=ids)
    def value(request: Any) -> Any:
        return request.param

    return value


def parameters(*rows: Any, ids: Any = None) -> tuple[Any, ...]:
    """Several fixtures that vary together: `n, dtype = parameters((1, "f"), (2, "i"))`."""
    import pytest

    def fixture(column: int) -> Any:
        @pytest.fixture(params=range(len(rows)), ids=ids)
        def value(request: Any) -> Any:
            return rows[request.param][column]

        return value

    return tuple(fixture(i) for i in range(len(rows[0])))


def fixture(func: Any = None, *, cache_return_value: bool = False) -> Any:
    """pytest's fixture."""
    import pytest

    return pytest.fixture(func) if func is not None else pytest.fixture


def _skip_unless(available: Callable[[], bool], what: str) -> Callable[..., Any]:
    def decorator(func: Any = None, **_options: Any) -> Any:
        import pytest

        mark = pytest.mark.skipif(not available(), reason=f"needs {what}")
        return mark if func is None else mark(func)

    return decorator


def _never() -> bool:
    return False


requires_llvm = _skip_unless(lambda: True, "LLVM")
requires_gpu = _skip_unless(_never, "a GPU")
requires_cuda = _skip_unless(_never, "CUDA")
requires_cublas = _skip_unless(_never, "cuBLAS")


def enabled_targets() -> list[tuple[str, Any]]:
    """Targets that this machine can run."""
    from relaxvm.runtime import cpu

    return [("llvm", cpu())]


def parametrize_targets(*targets: str) -> Any:
    """Runs a test for each of the targets that this machine can run."""
    import pytest

    rows = [row for row in enabled_targets() if not targets or row[0] in targets]
    return pytest.mark.parametrize("target,dev", rows, ids=[r[0] for r in rows])
