"""A fail-over pair of servers: `Pair` tells your server whether it is the one that serves."""

from __future__ import annotations

from requite.pair.pair import Pair
from requite.protocols.binarystar.table import Role, State
from requite.protocols.binarystar.view import PairView

__all__ = ["Pair", "PairView", "Role", "State"]
