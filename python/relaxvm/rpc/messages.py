# SPDX-License-Identifier: Apache-2.0
"""Values as bytes: msgpack, a tensor as dtype, shape and raw bytes.  Decoding makes values and nothing else."""

from __future__ import annotations

import math
import numbers
import urllib.parse
from typing import Any

import numpy as np

from .._ffi import tvm_ffi
from ..runtime.tensor import Tensor, _numpy_dtype, tensor

try:
    import grpc
    import msgpack
except ImportError as e:
    raise ImportError("relaxvm.rpc needs gRPC and msgpack: pip install 'relaxvm[rpc]'") from e

SERVICE = "relaxvm.Remote"
TOKEN_KEY = "authorization"
DEFAULT_MESSAGE_BYTES = 256 << 20
MAX_DIMENSIONS = 64
# What is no plain value is a map with one of these keys.
_TENSOR, _SHAPE, _TUPLE, _FIELDS = "tensor", "shape", "tuple", "fields"

# What the other side may raise here, by name.
_ERRORS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        ArithmeticError,
        AssertionError,
        AttributeError,
        IndexError,
        KeyError,
        MemoryError,
        NotImplementedError,
        PermissionError,
        RecursionError,
        RuntimeError,
        TimeoutError,
        TypeError,
        ValueError,
    )
}


class RemoteError(RuntimeError):
    """An error of the server that has no class of its own here."""


def options(message_bytes: int) -> list[tuple[str, int]]:
    """Of a channel or a server: what one message may have."""
    return [
        ("grpc.max_receive_message_length", message_bytes),
        ("grpc.max_send_message_length", message_bytes),
    ]


def token_text(token: str) -> str:
    """What a client shows: headers take ASCII."""
    return f"Bearer {urllib.parse.quote(token, safe='')}"


def encode(message: Any) -> bytes:
    return msgpack.packb(_plain(message), use_bin_type=True)


def decode(data: bytes) -> Any:
    """The values in `data`; ValueError when it is anything but what `encode` writes."""
    try:
        raw = msgpack.unpackb(data, raw=False, strict_map_key=True)
    except (ValueError, RecursionError, msgpack.exceptions.UnpackException) as e:
        raise ValueError(f"a message is damaged: {e or type(e).__name__}") from None
    return _value(raw)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, str, bytes)):
        return value
    if isinstance(value, np.generic) or hasattr(value, "__dlpack__"):
        return _tensor_fields(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, dict):
        return {_FIELDS: {str(key): _plain(item) for key, item in value.items()}}
    if isinstance(value, tvm_ffi.Shape):
        return {_SHAPE: [int(dim) for dim in value]}
    if isinstance(value, (list, tuple, tvm_ffi.Array)):
        return {_TUPLE: [_plain(item) for item in value]}
    raise TypeError(
        f"a {type(value).__name__} cannot be sent; send tensors, numbers, strings, shapes, and tuples of them"
    )


def _tensor_fields(value: Any) -> dict[str, Any]:
    if isinstance(value, tvm_ffi.core.Tensor):
        array = value.numpy() if hasattr(value, "numpy") else tensor(value).numpy()
        dtype = str(value.dtype)
    else:
        array = np.asarray(
            value if isinstance(value, (np.ndarray, np.generic)) else np.from_dlpack(value)
        )
        dtype = array.dtype.name
    if array.dtype.kind in "OSUMm":
        raise TypeError(f"an array of {array.dtype} cannot be sent; its elements must be numbers")
    array = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
    return {_TENSOR: [dtype, list(np.shape(value)), array.tobytes()]}


def _value(raw: Any) -> Any:
    if isinstance(raw, list):
        raise ValueError("a message is damaged: a list that is neither a tuple nor a shape")
    if not isinstance(raw, dict):
        return raw
    if len(raw) == 1:
        ((key, content),) = raw.items()
        if key == _TENSOR and isinstance(content, list) and len(content) == 3:
            return _tensor_of(*content)
        if key == _SHAPE:
            return tvm_ffi.Shape(_integers(content))
        if key == _TUPLE and isinstance(content, list):
            return [_value(item) for item in content]
        if key == _FIELDS and isinstance(content, dict):
            return {name: _value(item) for name, item in content.items()}
    raise ValueError("a message is damaged: a map that is no value")


def _integers(values: Any) -> list[int]:
    if not isinstance(values, list) or len(values) > MAX_DIMENSIONS:
        raise ValueError("a message is damaged: a shape is no short list")
    if not all(type(v) is int and 0 <= v < 1 << 56 for v in values):
        raise ValueError("a message is damaged: a dimension is no natural number")
    return values


def _tensor_of(name: Any, shape: Any, data: Any) -> Tensor:
    shape = _integers(shape)
    try:
        dtype = _numpy_dtype(str(name))
    except (TypeError, AttributeError):
        raise ValueError(f"a message is damaged: there is no dtype {name!r}") from None
    if dtype.kind in "OSUMm" or not isinstance(data, bytes):
        raise ValueError("a message is damaged: a tensor without bytes")
    if math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError(f"a message is damaged: {len(data)} bytes are no tensor {shape} of {name}")
    return tensor(np.frombuffer(data, dtype).reshape(shape))


def error_fields(e: BaseException) -> dict[str, Any]:
    text = str(e.args[0]) if isinstance(e, KeyError) and e.args else str(e)
    return {"error": {"kind": type(e).__name__, "message": text or type(e).__name__}}


def raise_error(fields: dict[str, Any]) -> None:
    kind, message = str(fields.get("kind")), str(fields.get("message"))
    raise _ERRORS[kind](message) if kind in _ERRORS else RemoteError(f"{kind}: {message}")


__all__ = ["grpc"]
