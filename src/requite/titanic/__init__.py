"""Titanic: durable requests (9/TSP).

`Titanic` serves `titanic.request`, `titanic.reply` and `titanic.close` behind an MDP broker. It
stores requests on disk, dispatches them to the services of the broker, and stores the replies.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from requite.titanic.settings import TitanicSettings
    from requite.titanic.titanic import Titanic

__all__ = ["Titanic", "TitanicSettings"]

_HOME = {"Titanic": "requite.titanic.titanic", "TitanicSettings": "requite.titanic.settings"}


def __getattr__(name: str) -> Any:
    """Load a public name's module on first use (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'requite.titanic' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value
