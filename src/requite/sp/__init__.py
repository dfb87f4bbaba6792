"""The scalability protocols (SP) as sockets: `Req`, `Rep` and `Device`, for use on an event loop.

`requite.Client`, `AsyncClient` and `Worker` speak SP, too, by URLs such as `sp+tcp://host:port`.
Use these sockets to control dialling, listening, requests and replies yourself.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from requite.sp.device import Device
    from requite.sp.rep import Rep, Request
    from requite.sp.req import Req

__all__ = ["Device", "Rep", "Req", "Request"]

_HOME = {
    "Device": "requite.sp.device",
    "Rep": "requite.sp.rep",
    "Req": "requite.sp.req",
    "Request": "requite.sp.rep",
}


def __getattr__(name: str) -> Any:
    """Load a public name's module on first use (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'requite.sp' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value
