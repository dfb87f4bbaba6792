"""A pair as one of its servers sees it, and what may be asked of that server from inside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from requite.protocols.binarystar.table import Role, State
from requite.protocols.binarystar.wire import NEVER_MS, View


class Vote(NamedTuple):
    """Input: a client asks this server for something."""


class SwitchOver(NamedTuple):
    """Input: an operator wants the other server to be active, whichever that is now."""


@dataclass(frozen=True, slots=True)
class PairView:
    """What one server knows of itself and of the other.

    - `role`: which of the two it is; `state`: what it is now.
    - `epoch`: the reign it is in, or the latest it has heard of; 0: none yet.
    - `peer_state`: what the other last said it is; None: it has not been heard yet.
    - `heard_s_ago`: when that was, in seconds; None: never.
    - `serves`: whether this server may answer clients at this moment.
    - `peer_is_silent`: whether the other counts as gone.
    - `trouble`: why the pair has failed and what to do; or, where the other is not heard, what is
      known of why; "" if nothing is.
    """

    role: Role
    state: State
    epoch: int
    peer_state: State | None
    heard_s_ago: float | None
    serves: bool
    peer_is_silent: bool
    trouble: str = ""


def view_on_wire(view: PairView, heartbeat_ms: int) -> View:
    """Return what an operator is answered."""
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
    """Return what an operator has been answered."""
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
