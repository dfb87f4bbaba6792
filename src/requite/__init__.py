"""Send a request; get its reply, or an error that says whether it may have run.

    import requite

    with requite.Client("mdp://localhost:5555/echo") as client:
        print(client.call(b"hello", timeout=2.5).body)

This package has the public names and loads each on first use: a program that only calls services
never loads the broker. `requite.errors` and `requite.request` describe errors and data types.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from requite.core import liveness
from requite.core.liveness import HeartbeatPolicy
from requite.errors import (
    BadReply,
    BadRequest,
    CallError,
    CallTimeout,
    Cancelled,
    ConfigurationError,
    LocalViolation,
    NoService,
    Overloaded,
    PairFailed,
    Poisoned,
    ProtocolViolation,
    RemoteFailure,
    RemoteViolation,
    RequiteError,
    StoreUnavailable,
    TransportError,
    UnknownTicket,
    WorkerLost,
)
from requite.request import Deadline, Partial, Reply, Request, RetryPolicy, Status

if TYPE_CHECKING:
    from requite import sp
    from requite.broker import Broker
    from requite.client import AsyncClient, Client
    from requite.client.call_arguments import deadline
    from requite.dedup import Dedup
    from requite.protocols.majordomo.policy import BrokerPolicy
    from requite.shell.curve import CurveListener
    from requite.typed import (
        CallOptions,
        Context,
        Depends,
        Middleware,
        Proceed,
        Service,
        raises,
    )
    from requite.worker import Worker, service

__version__ = "0.1.0"
__build__ = "pure" if liveness.__file__.endswith((".py", ".pyc")) else "compiled"
"""Whether the core of this installation was compiled to machine code."""

__all__ = [
    "AsyncClient",
    "BadReply",
    "BadRequest",
    "Broker",
    "BrokerPolicy",
    "CallError",
    "CallOptions",
    "CallTimeout",
    "Cancelled",
    "Client",
    "ConfigurationError",
    "Context",
    "CurveListener",
    "Deadline",
    "Dedup",
    "Depends",
    "HeartbeatPolicy",
    "LocalViolation",
    "Middleware",
    "NoService",
    "Overloaded",
    "PairFailed",
    "Partial",
    "Poisoned",
    "Proceed",
    "ProtocolViolation",
    "RemoteFailure",
    "RemoteViolation",
    "Reply",
    "Request",
    "RequiteError",
    "RetryPolicy",
    "Service",
    "Status",
    "StoreUnavailable",
    "TransportError",
    "UnknownTicket",
    "Worker",
    "WorkerLost",
    "deadline",
    "raises",
    "service",
    "sp",
]

_HOME = {
    "AsyncClient": "requite.client",
    "Broker": "requite.broker",
    "BrokerPolicy": "requite.protocols.majordomo.policy",
    "CallOptions": "requite.typed",
    "Client": "requite.client",
    "Context": "requite.typed",
    "CurveListener": "requite.shell.curve",
    "Dedup": "requite.dedup",
    "Depends": "requite.typed",
    "Middleware": "requite.typed",
    "Proceed": "requite.typed",
    "Service": "requite.typed",
    "Worker": "requite.worker",
    "deadline": "requite.client.call_arguments",
    "raises": "requite.typed",
    "service": "requite.worker",
}


def refuse_windows() -> None:
    """Raise `ConfigurationError` on Windows, which requite does not support."""
    if sys.platform == "win32":
        raise ConfigurationError(
            "requite does not run on Windows: Python has no `fcntl` and `resource` there. Use "
            "WSL 2, which is Linux"
        )


def __getattr__(name: str) -> Any:
    """Load a public name's module on first use (PEP 562)."""
    if name == "sp":
        refuse_windows()
        return import_module("requite.sp")
    if name not in _HOME:
        raise AttributeError(f"module 'requite' has no attribute {name!r}")
    refuse_windows()
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value
