"""The state of a pair as one server sees it, and the engine's local inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from requite.protocols.binarystar.table import PairRole, State
from requite.protocols.binarystar.wire import NEVER_MS, View
from requite.value import Value


class Vote(NamedTuple):
    """Input: a client has sent this server a request."""


class SwitchOver(NamedTuple):
    """Input: an operator switches the active server."""


@dataclass(frozen=True, slots=True)
class PairView(Value):
    """What one server knows of itself and of the other.

    - `role`: its configured role; `state`: its current state.
    - `epoch`: the current epoch, or the latest it has heard of; 0: none yet.
    - `peer_state`: the state in the other's last heartbeat; None: none has arrived.
    - `heard_s_ago`: age of that heartbeat in seconds; None: none has arrived.
    - `serves`: whether this server may answer clients at this moment.
    - `peer_is_silent`: whether the other counts as dead.
    - `trouble`: why the pair has failed and what to do, or why the other cannot be reached, if
      known; otherwise "".
    """

    role: PairRole
    state: State
    epoch: int
    peer_state: State | None
    heard_s_ago: float | None
    serves: bool
    peer_is_silent: bool
    trouble: str = ""


def view_on_wire(view: PairView, heartbeat_ms: int) -> View:
    """Encode a view for an operator."""
    ago_s = view.heard_s_ago
    return View(
        role=view.role,
        state=view.state,
        serves=view.serves,
        peer_is_silent=view.peer_is_silent,
        peer_state=view.peer_state or 0,
        heard_ms=NEVER_MS if ago_s is None else min(int(1000 * ago_s), NEVER_MS - 1),
        interval_ms=heartbeat_ms,
        epoch=view.epoch,
        trouble=view.trouble,
    )


def view_from_wire(view: View) -> PairView:
    """Decode a view for an operator."""
    return PairView(
        role=view.role,
        state=view.state,
        epoch=view.epoch,
        peer_state=State(view.peer_state) if view.peer_state else None,
        heard_s_ago=None if view.heard_ms == NEVER_MS else view.heard_ms / 1000,
        serves=view.serves,
        peer_is_silent=view.peer_is_silent,
        trouble=view.trouble,
    )
