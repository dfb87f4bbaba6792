"""The state machine of a fail-over pair, as a table from state and event to state and action.

It is the Guide's (chapter 4, "Binary Star Implementation") with three additions. Each take-over
begins a new epoch; an active server that hears of a newer epoch steps down. An active server whose
process was paused is *suspended*: the other may have taken over. An active server that hands over,
on an operator's request or because it stops, is *resigned* until the other has taken over.

Events without an entry change nothing. The diagram in docs/topics/patterns/binary-star.md is
generated from this table.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final


class PairRole(IntEnum):
    """The configured role of a server; it never changes."""

    PRIMARY = 1
    BACKUP = 2

    @property
    def other(self) -> PairRole:
        """The role of the peer."""
        return PairRole.BACKUP if self is PairRole.PRIMARY else PairRole.PRIMARY


class State(IntEnum):
    """The current state of a server. The first four and their numbers are the Guide's."""

    PRIMARY = 1  # started, waits for a heartbeat of the backup
    BACKUP = 2  # started, waits for a heartbeat of the primary
    ACTIVE = 3  # serves
    PASSIVE = 4  # does not serve; the other is active
    SUSPENDED = 5  # was active, was paused, and checks whether it still is
    RESIGNED = 6  # was active, and waits for the other to take over
    FAILED = 7  # contradictory states; an operator must decide


class Event(Enum):
    """Events of the table. `OLDER`, `EQUAL`, `NEWER`: the peer's epoch compared with our own."""

    PEER_PRIMARY = "the peer has started as primary"
    PEER_BACKUP = "the peer has started as backup"
    OLDER_ACTIVE = "the peer is active in an older epoch"
    EQUAL_ACTIVE = "the peer is active in the same epoch"
    NEWER_ACTIVE = "the peer is active in a newer epoch"
    PEER_PASSIVE = "the peer is passive, in another epoch"
    EQUAL_PASSIVE = "the peer is passive in the same epoch"
    OLDER_SUSPENDED = "the peer is suspended in an older epoch"
    EQUAL_SUSPENDED = "the peer is suspended in the same epoch"
    NEWER_SUSPENDED = "the peer is suspended in a newer epoch"
    OLDER_RESIGNED = "the peer has resigned from an older epoch"
    NEWER_RESIGNED = "the peer has resigned from a newer epoch"
    CLIENT_REQUEST = "a client sends a request, and the peer is alive"
    CLIENT_VOTE = "a client sends a request, and the peer is silent"
    SWITCH = "an operator switches, and the peer is alive"
    SEIZE = "an operator switches, and the peer is silent"
    STALL = "the process was paused for at least the fail-over time"


class Action(Enum):
    """Actions of the table."""

    TAKE_OVER = "begin a new epoch and serve"
    RESUME = "serve again, in the same epoch"
    FOLLOW = "become passive: the other server serves"
    SUSPEND = "do not serve until the peer has answered, or is silent"
    RESIGN = "resign, so that the other server takes over"
    ASK = "ask the peer to resign"
    FAIL = "fail: an operator must decide"


TABLE: Final[dict[tuple[State, Event], tuple[State, Action]]] = {
    # A starting primary waits for a fail-over time before clients can make it active: after a
    # restart, the backup may be active.
    (State.PRIMARY, Event.PEER_BACKUP): (State.ACTIVE, Action.TAKE_OVER),
    (State.PRIMARY, Event.OLDER_ACTIVE): (State.PASSIVE, Action.FOLLOW),
    (State.PRIMARY, Event.EQUAL_ACTIVE): (State.PASSIVE, Action.FOLLOW),
    (State.PRIMARY, Event.NEWER_ACTIVE): (State.PASSIVE, Action.FOLLOW),
    (State.PRIMARY, Event.OLDER_RESIGNED): (State.ACTIVE, Action.TAKE_OVER),
    (State.PRIMARY, Event.NEWER_RESIGNED): (State.ACTIVE, Action.TAKE_OVER),
    (State.PRIMARY, Event.CLIENT_VOTE): (State.ACTIVE, Action.TAKE_OVER),
    (State.PRIMARY, Event.SEIZE): (State.ACTIVE, Action.TAKE_OVER),
    # A backup that has never heard the primary serves only if an operator switches.
    (State.BACKUP, Event.OLDER_ACTIVE): (State.PASSIVE, Action.FOLLOW),
    (State.BACKUP, Event.EQUAL_ACTIVE): (State.PASSIVE, Action.FOLLOW),
    (State.BACKUP, Event.NEWER_ACTIVE): (State.PASSIVE, Action.FOLLOW),
    (State.BACKUP, Event.OLDER_RESIGNED): (State.ACTIVE, Action.TAKE_OVER),
    (State.BACKUP, Event.NEWER_RESIGNED): (State.ACTIVE, Action.TAKE_OVER),
    (State.BACKUP, Event.SEIZE): (State.ACTIVE, Action.TAKE_OVER),
    # An active server remains active when the other returns: there is no automatic fail-back.
    (State.ACTIVE, Event.EQUAL_ACTIVE): (State.FAILED, Action.FAIL),
    (State.ACTIVE, Event.NEWER_ACTIVE): (State.PASSIVE, Action.FOLLOW),
    (State.ACTIVE, Event.SWITCH): (State.RESIGNED, Action.RESIGN),
    (State.ACTIVE, Event.STALL): (State.SUSPENDED, Action.SUSPEND),
    # A passive server takes over from a peer that restarts, resigns, or is silent when clients ask.
    (State.PASSIVE, Event.PEER_PRIMARY): (State.ACTIVE, Action.TAKE_OVER),
    (State.PASSIVE, Event.PEER_BACKUP): (State.ACTIVE, Action.TAKE_OVER),
    (State.PASSIVE, Event.EQUAL_PASSIVE): (State.FAILED, Action.FAIL),
    (State.PASSIVE, Event.OLDER_RESIGNED): (State.ACTIVE, Action.TAKE_OVER),
    (State.PASSIVE, Event.NEWER_RESIGNED): (State.ACTIVE, Action.TAKE_OVER),
    (State.PASSIVE, Event.CLIENT_VOTE): (State.ACTIVE, Action.TAKE_OVER),
    (State.PASSIVE, Event.SWITCH): (State.PASSIVE, Action.ASK),
    (State.PASSIVE, Event.SEIZE): (State.ACTIVE, Action.TAKE_OVER),
    # A suspended server serves again when the peer has answered a heartbeat sent after the pause.
    (State.SUSPENDED, Event.PEER_PRIMARY): (State.ACTIVE, Action.RESUME),
    (State.SUSPENDED, Event.PEER_BACKUP): (State.ACTIVE, Action.RESUME),
    (State.SUSPENDED, Event.NEWER_ACTIVE): (State.PASSIVE, Action.FOLLOW),
    (State.SUSPENDED, Event.PEER_PASSIVE): (State.ACTIVE, Action.RESUME),
    (State.SUSPENDED, Event.EQUAL_PASSIVE): (State.ACTIVE, Action.RESUME),
    (State.SUSPENDED, Event.OLDER_SUSPENDED): (State.ACTIVE, Action.RESUME),
    (State.SUSPENDED, Event.EQUAL_SUSPENDED): (State.FAILED, Action.FAIL),
    (State.SUSPENDED, Event.NEWER_SUSPENDED): (State.PASSIVE, Action.FOLLOW),
    (State.SUSPENDED, Event.OLDER_RESIGNED): (State.ACTIVE, Action.TAKE_OVER),
    (State.SUSPENDED, Event.NEWER_RESIGNED): (State.ACTIVE, Action.TAKE_OVER),
    (State.SUSPENDED, Event.CLIENT_VOTE): (State.ACTIVE, Action.TAKE_OVER),
    (State.SUSPENDED, Event.SEIZE): (State.ACTIVE, Action.TAKE_OVER),
    # A resigned server waits for the other, and takes over again if that is silent.
    (State.RESIGNED, Event.NEWER_ACTIVE): (State.PASSIVE, Action.FOLLOW),
    (State.RESIGNED, Event.NEWER_RESIGNED): (State.ACTIVE, Action.TAKE_OVER),
    (State.RESIGNED, Event.CLIENT_VOTE): (State.ACTIVE, Action.TAKE_OVER),
    (State.RESIGNED, Event.SEIZE): (State.ACTIVE, Action.TAKE_OVER),
}
"""(state, event): (next state, action)."""


def heard(state: State, epoch: int, own_epoch: int) -> Event | None:
    """Return the event of a peer's heartbeat; None if it is none.

    Two correct servers never begin the same epoch (`next_epoch`); equal epochs indicate a peer that
    violates this.
    """
    match state:
        case State.PRIMARY:
            return Event.PEER_PRIMARY
        case State.BACKUP:
            return Event.PEER_BACKUP
        case State.PASSIVE:
            return Event.EQUAL_PASSIVE if epoch == own_epoch else Event.PEER_PASSIVE
        case State.ACTIVE:
            ages = (Event.OLDER_ACTIVE, Event.EQUAL_ACTIVE, Event.NEWER_ACTIVE)
        case State.SUSPENDED:
            ages = (Event.OLDER_SUSPENDED, Event.EQUAL_SUSPENDED, Event.NEWER_SUSPENDED)
        case State.RESIGNED:
            ages = (Event.OLDER_RESIGNED, Event.OLDER_RESIGNED, Event.NEWER_RESIGNED)
        case State.FAILED:
            return None
    return ages[(epoch >= own_epoch) + (epoch > own_epoch)]


def next_epoch(role: PairRole, known: int) -> int:
    """Return the first epoch after `known` that may be ours: a primary's are odd, a backup's even.

    So the two servers never begin the same epoch, whatever they have missed or forgotten.
    """
    epoch = known + 1
    return epoch if epoch % 2 == role % 2 else epoch + 1
