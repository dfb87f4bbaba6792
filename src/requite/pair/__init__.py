"""A fail-over pair of servers: `Pair` decides whether your server is the active one."""

from __future__ import annotations

import warnings
from typing import Any

from requite.pair.pair import Pair
from requite.protocols.binarystar.table import PairRole, State
from requite.protocols.binarystar.view import PairView

__all__ = ["Pair", "PairRole", "PairView", "State"]


def __getattr__(name: str) -> Any:
    """Return `PairRole` under its former name `Role`, with a warning."""
    if name != "Role":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn("requite.pair.Role is deprecated; use PairRole", DeprecationWarning, stacklevel=2)
    return PairRole
