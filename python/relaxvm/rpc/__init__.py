# SPDX-License-Identifier: Apache-2.0
"""Models in another process or on another machine: `relaxvm serve` there, `connect` here.

gRPC carries the calls, msgpack the values.  Needs `pip install relaxvm[rpc]`.
"""

from __future__ import annotations

from .client import RemoteVirtualMachine, Session, connect
from .messages import RemoteError
from .server import Server, ServerOptions

__all__ = ["RemoteError", "RemoteVirtualMachine", "Server", "ServerOptions", "Session", "connect"]
