# SPDX-License-Identifier: Apache-2.0
"""Serves models: each client has machines of its own; what it may do is in `ServerOptions`.

A client sends names and values.  It runs functions of the models that are served, and native code of its own only where
uploads are allowed.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import hmac
import ipaddress
import logging
import os
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..runtime import Device, VirtualMachine, VMExecutable, cpu, load
from . import messages
from .messages import grpc

logger = logging.getLogger("relaxvm.rpc")


@dataclasses.dataclass(frozen=True)
class ServerOptions:
    """Limits of a server.  `token` is what clients must show; only a server for this machine alone may have none."""

    host: str = "127.0.0.1"
    port: int = 0  # 0: any that is free
    token: str = ""
    message_bytes: int = messages.DEFAULT_MESSAGE_BYTES
    call_seconds: float = 300.0  # most time of one call
    idle_seconds: float = 3600.0  # machines that no call has used for so long are dropped
    max_machines: int = 64  # of all clients together
    max_threads: int = 8  # calls at once
    allow_upload: bool = False  # clients may send libraries, whose code then runs here
    upload_bytes: int = 4 << 30
    credentials: Any = None  # of grpc.ssl_server_credentials; None: not encrypted


@dataclasses.dataclass
class _Machine:
    vm: VirtualMachine
    executable: VMExecutable
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    saved: set[str] = dataclasses.field(default_factory=set)
    used: float = 0.0


class Server:
    """Serves executables by name until `stop`; a context manager."""

    def __init__(
        self,
        models: Mapping[str, VMExecutable],
        options: ServerOptions | None = None,
        device: Device | None = None,
    ) -> None:
        self.options = options or ServerOptions()
        _check_reach(self.options)
        self._models = dict(models)
        self._device = device or cpu()
        self._machines: dict[str, _Machine] = {}
        self._lock = threading.Lock()  # guards the two tables
        self._uploads = tempfile.TemporaryDirectory(prefix="relaxvm-uploads-")
        self._server = grpc.server(
            concurrent.futures.ThreadPoolExecutor(self.options.max_threads),
            options=[*messages.options(self.options.message_bytes), ("grpc.so_reuseport", 0)],
            maximum_concurrent_rpcs=4 * self.options.max_threads,
        )
        self._server.add_generic_rpc_handlers((self._handlers(),))
        self.port = self._listen()
        self._server.start()

    @property
    def address(self) -> str:
        return f"{self.options.host}:{self.port}"

    def wait(self, timeout: float | None = None) -> bool:
        """Returns when the server has stopped, or after `timeout` seconds (True)."""
        return self._server.wait_for_termination(timeout)

    def stop(self, grace: float = 1.0) -> None:
        """Ends calls after `grace` seconds."""
        self._server.stop(grace).wait()
        with self._lock:
            self._machines.clear()
        self._uploads.cleanup()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    # ---- the wire ----

    def _listen(self) -> int:
        address = f"{self.options.host}:{self.options.port}"
        try:
            if self.options.credentials is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, self.options.credentials)
        except RuntimeError:
            port = 0
        if port == 0:
            raise OSError(f"cannot listen on {address}; is the port in use?")
        return port

    def _handlers(self) -> grpc.GenericRpcHandler:
        unary: dict[str, Callable[..., Any]] = {
            "List": self._list,
            "Open": self._open,
            "Close": self._close,
            "Call": self._call,
            "SetInput": self._set_input,
            "InvokeStateful": self._invoke_stateful,
            "GetOutputs": self._get_outputs,
            "SaveFunction": self._save_function,
            "TimeFunction": self._time_function,
        }
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(self._guarded(method))
            for name, method in unary.items()
        }
        handlers["Upload"] = grpc.stream_unary_rpc_method_handler(self._guarded_upload)
        return grpc.method_handlers_generic_handler(messages.SERVICE, handlers)

    def _guarded(
        self, method: Callable[..., Any]
    ) -> Callable[[bytes, grpc.ServicerContext], bytes]:
        def handle(data: bytes, context: grpc.ServicerContext) -> bytes:
            self._authenticate(context)
            return self._answer(lambda: method(_seconds(context, self.options), **_request(data)))

        return handle

    def _guarded_upload(self, chunks: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        self._authenticate(context)
        return self._answer(lambda: self._upload(chunks))

    def _answer(self, run: Callable[[], Any]) -> bytes:
        try:
            reply = messages.encode({"value": run()})
            if len(reply) > self.options.message_bytes:
                raise ValueError(
                    f"the answer has {len(reply)} bytes, the server sends {self.options.message_bytes} at most"
                )
            return reply
        except Exception as e:  # whatever goes wrong is the answer
            logger.info("a call failed: %s", e)
            return messages.encode(messages.error_fields(e))

    def _authenticate(self, context: grpc.ServicerContext) -> None:
        shown = dict(context.invocation_metadata()).get(messages.TOKEN_KEY, "")
        if not hmac.compare_digest(str(shown), messages.token_text(self.options.token)):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is wrong")

    # ---- what clients ask for; the first argument is the seconds that are left for it ----

    def _list(self, seconds: float) -> dict[str, Any]:
        with self._lock:
            models = dict(self._models)
        return {name: sorted(executable.function_names()) for name, executable in models.items()}

    def _open(self, seconds: float, model: str) -> str:
        now = time.monotonic()
        with self._lock:
            executable = self._models.get(model)
            if executable is None:
                raise KeyError(f"there is no model {model!r}; there are {sorted(self._models)}")
            for name, machine in list(self._machines.items()):
                if now - machine.used > self.options.idle_seconds:
                    del self._machines[name]
            if len(self._machines) >= self.options.max_machines:
                raise RuntimeError(
                    f"the server has {self.options.max_machines} machines open, its limit"
                )
        machine = _Machine(VirtualMachine(executable, self._device), executable, used=now)
        name = secrets.token_hex(16)
        with self._lock:
            self._machines[name] = machine
        return name

    def _close(self, seconds: float, machine: str) -> None:
        with self._lock:
            self._machines.pop(machine, None)

    def _machine(self, name: str, function: str, seconds: float) -> _Machine:
        """The machine, its time limit set; `function` is one of the program's: a machine's own functions stay here."""
        with self._lock:
            machine = self._machines.get(name)
        if machine is None:
            raise KeyError("there is no such machine; it was closed, or idle for too long")
        machine.used = time.monotonic()
        if not (machine.executable.has_function(function) or function in machine.saved):
            raise AttributeError(f"the executable has no function {function!r}")
        machine.vm.set_time_limit(max(1.0, seconds * 1e3))
        return machine

    def _call(self, seconds: float, machine: str, function: str, args: list, kwargs: dict) -> Any:
        return self._machine(machine, function, seconds).vm.call(function, *args, **kwargs)

    def _set_input(
        self, seconds: float, machine: str, function: str, args: list, kwargs: dict
    ) -> None:
        self._machine(machine, function, seconds).vm.set_input(function, *args, **kwargs)

    def _invoke_stateful(self, seconds: float, machine: str, function: str) -> None:
        self._machine(machine, function, seconds).vm.invoke_stateful(function)

    def _get_outputs(self, seconds: float, machine: str, function: str) -> Any:
        return self._machine(machine, function, seconds).vm.get_outputs(function)

    def _save_function(
        self,
        seconds: float,
        machine: str,
        function: str,
        saved_name: str,
        include_return: bool,
        args: list,
        kwargs: dict,
    ) -> None:
        target = self._machine(machine, function, seconds)
        if not saved_name or not isinstance(saved_name, str):
            raise ValueError("a saved function needs a name")
        target.vm.save_function(
            function, saved_name, *args, include_return=include_return, **kwargs
        )
        target.saved.add(saved_name)

    def _time_function(
        self, seconds: float, machine: str, function: str, number: int, repeat: int, args: list
    ) -> list:
        target = self._machine(machine, function, seconds)
        deadline = time.monotonic() + seconds
        results: list[float] = []
        for _ in range(repeat):
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{len(results)} of {repeat} measurements took all the time there was"
                )
            results += target.vm.time_evaluator(function, number=number)(*args).results
        return results

    def _upload(self, chunks: Iterator[bytes]) -> str:
        if not self.options.allow_upload:
            raise PermissionError("this server takes no uploads; start it with --allow-upload")
        header = _request(next(chunks, b""))
        name = header.get("name")
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError("the name of an uploaded model must be an identifier")
        path = os.path.join(self._uploads.name, f"{secrets.token_hex(8)}.so")
        size = 0
        with open(path, "wb") as file:
            for chunk in chunks:
                size += len(chunk)
                if size > self.options.upload_bytes:
                    file.close()
                    os.remove(path)
                    raise ValueError(f"uploads have {self.options.upload_bytes} bytes at most")
                file.write(chunk)
        executable = load(path)
        with self._lock:
            self._models[name] = executable
        return name


def _request(data: bytes) -> dict[str, Any]:
    request = messages.decode(data)
    if not isinstance(request, dict):
        raise ValueError("a message is damaged: a request has fields")
    return request


def _seconds(context: grpc.ServicerContext, options: ServerOptions) -> float:
    remaining = context.time_remaining()
    return options.call_seconds if remaining is None else min(remaining, options.call_seconds)


def _check_reach(options: ServerOptions) -> None:
    """Who can reach the server must show a token, except on this machine."""
    try:
        is_local = ipaddress.ip_address(options.host).is_loopback
    except ValueError:
        is_local = options.host == "localhost"
    if not is_local and not options.token:
        raise ValueError(
            f"a server on {options.host} is reachable from other machines; give it a token, or use host 127.0.0.1"
        )
