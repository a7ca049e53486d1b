# SPDX-License-Identifier: Apache-2.0
"""A machine in another process: the stateful interface, and direct calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from ..runtime.module import BenchmarkResult
from . import messages
from .messages import grpc

_CHUNK_BYTES = 1 << 20


def connect(
    address: str,
    token: str = "",
    *,
    timeout: float = 60.0,
    message_bytes: int = messages.DEFAULT_MESSAGE_BYTES,
    credentials: Any = None,
) -> Session:
    """A session with the server at "host:port"; ConnectionError when there is none.

    `timeout` is the most seconds of each call, `message_bytes` the most bytes of one message.  `credentials` are those
    of grpc.ssl_channel_credentials for a server with a certificate.
    """
    session = Session(address, token, timeout, message_bytes, credentials)
    try:
        session.models()
    except BaseException:
        session.close()
        raise
    return session


class Session:
    """A connection; a context manager."""

    def __init__(
        self, address: str, token: str, timeout: float, message_bytes: int, credentials: Any
    ) -> None:
        self.address, self.timeout, self._message_bytes = address, timeout, message_bytes
        options = messages.options(message_bytes)
        if credentials is None:
            self._channel = grpc.insecure_channel(address, options)
        else:
            self._channel = grpc.secure_channel(address, credentials, options)
        self._metadata = ((messages.TOKEN_KEY, messages.token_text(token)),)

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def models(self) -> dict[str, list[str]]:
        """The models of the server, and the functions of each."""
        return self.call("List")

    def vm(self, model: str) -> RemoteVirtualMachine:
        """A machine of its own that runs the model."""
        return RemoteVirtualMachine(self, model, self.call("Open", model=model))

    def upload(self, path: str | os.PathLike, name: str) -> str:
        """Sends a compiled model, which the server then serves under `name`; servers allow it or not."""

        def chunks() -> Iterator[bytes]:
            yield messages.encode({"name": name})
            with open(path, "rb") as file:
                while chunk := file.read(_CHUNK_BYTES):
                    yield chunk

        os.stat(path)  # a missing file is this side's error
        method = self._channel.stream_unary(f"/{messages.SERVICE}/Upload")
        return self._finish(lambda: method(chunks(), self.timeout, self._metadata))

    def call(self, method: str, **fields: Any) -> Any:
        request = messages.encode(fields)
        if len(request) > self._message_bytes:
            raise ValueError(
                f"the arguments have {len(request)} bytes, one message {self._message_bytes} at most; "
                "see message_bytes of connect and of the server"
            )
        function = self._channel.unary_unary(f"/{messages.SERVICE}/{method}")
        return self._finish(lambda: function(request, self.timeout, self._metadata))

    def _finish(self, run: Callable[[], bytes]) -> Any:
        try:
            answer = messages.decode(run())
        except grpc.RpcError as e:
            raise self._error(e) from None
        if "error" in answer:
            messages.raise_error(answer["error"])
        return answer["value"]

    def _error(self, e: grpc.RpcError) -> Exception:
        code, details = e.code(), e.details()  # type: ignore[attr-defined]
        if code == grpc.StatusCode.UNAVAILABLE:
            return ConnectionError(
                f"the server at {self.address} is gone or was never there: {details}"
            )
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            return TimeoutError(
                f"the server at {self.address} did not answer within {self.timeout} s; see timeout of connect"
            )
        if code == grpc.StatusCode.UNAUTHENTICATED:
            return PermissionError(f"the server at {self.address} refuses: {details}")
        if code == grpc.StatusCode.RESOURCE_EXHAUSTED:
            return ValueError(
                f"a message is too large, or the server at {self.address} too busy: {details}; "
                "see message_bytes of connect and of the server"
            )
        return messages.RemoteError(f"the server at {self.address} failed: {code.name}: {details}")


class RemoteVirtualMachine:
    """A machine on the server: the methods of `relaxvm.VirtualMachine` that make sense from afar."""

    def __init__(self, session: Session, model: str, machine: str) -> None:
        self.session, self.model, self._machine = session, model, machine

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """A function that sends its arguments and returns what the function gives."""
        return lambda *args, **kwargs: self.call(name, *args, **kwargs)

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return _result(self._ask("Call", function=name, args=args, kwargs=kwargs))

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Sends the arguments of a function, for `invoke_stateful`."""
        self._ask("SetInput", function=func_name, args=args, kwargs=kwargs)

    def invoke_stateful(self, func_name: str) -> None:
        """Calls the function; its result stays on the server."""
        self._ask("InvokeStateful", function=func_name)

    def get_outputs(self, func_name: str) -> Any:
        """The result of the last `invoke_stateful`."""
        return _result(self._ask("GetOutputs", function=func_name))

    def save_function(
        self,
        func_name: str,
        saved_name: str,
        *args: Any,
        include_return: bool = True,
        **kwargs: Any,
    ) -> None:
        """Makes `saved_name` a function without parameters that calls `func_name` with these arguments."""
        self._ask(
            "SaveFunction",
            function=func_name,
            saved_name=saved_name,
            include_return=include_return,
            args=args,
            kwargs=kwargs,
        )

    def time_evaluator(
        self, func_name: str, number: int = 10, repeat: int = 1
    ) -> Callable[..., BenchmarkResult]:
        """A function that measures `func_name` on the server, without the way there."""

        def evaluate(*args: Any) -> BenchmarkResult:
            fields = {"function": func_name, "number": number, "repeat": repeat, "args": args}
            return BenchmarkResult(self._ask("TimeFunction", **fields))

        return evaluate

    def close(self) -> None:
        """Drops the machine on the server."""
        self._ask("Close")

    def _ask(self, method: str, **fields: Any) -> Any:
        return self.session.call(method, machine=self._machine, **fields)


def _result(value: Any) -> Any:
    """Tuples as the machine gives them."""
    return tuple(_result(item) for item in value) if isinstance(value, list) else value
