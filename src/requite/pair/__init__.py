"""A fail-over pair of servers: `Pair` decides whether your server is the active one."""

from __future__ import annotations

from requite.pair.pair import Pair
from requite.protocols.binarystar.table import PairRole, State
from requite.protocols.binarystar.view import PairView

__all__ = ["Pair", "PairRole", "PairView", "State"]
