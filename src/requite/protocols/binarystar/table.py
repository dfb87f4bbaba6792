"""The state machine of a fail-over pair, as a table: what is done in which state upon which event.

It is the Guide's (chapter 4, "Binary Star Implementation") with three additions. Every reign has an
epoch, so an active that hears of a newer one steps down. An active whose process stood still is
*suspended*: somebody else may reign by now. And an active that gives its place up, because an
operator says so or because it is to be stopped, has *resigned* until the other has taken over.

What is not in the table changes nothing. The diagram in docs/topics/patterns/binary-star.md is
drawn from it.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final


class Role(IntEnum):
    """Which of the two a server is: set by whoever configures the pair, and never changed."""

    PRIMARY = 1
    BACKUP = 2

    @property
    def other(self) -> Role:
        """The role of the peer."""
        return Role.BACKUP if self is Role.PRIMARY else Role.PRIMARY


class State(IntEnum):
    """What a server is just now. The first four are the Guide's, and so are their numbers."""

    PRIMARY = 1  # has started, and waits for a word of the backup
    BACKUP = 2  # has started, and waits for a word of the primary
    ACTIVE = 3  # serves
    PASSIVE = 4  # does not, while the other does
    SUSPENDED = 5  # was active, stood still, and does not know whether it still is
    RESIGNED = 6  # was active, and waits for the other to take over
    FAILED = 7  # two of a kind: only a person can say who is right


class Event(Enum):
    """What a server may learn. `OLDER`, `EQUAL`, `NEWER`: the peer's epoch beside our own."""

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
    CLIENT_REQUEST = "a client asks, and the peer lives"
    CLIENT_VOTE = "a client asks, and the peer is silent"
    SWITCH = "an operator switches, and the peer lives"
    SEIZE = "an operator switches, and the peer is silent"
    STALL = "the process stood still for as long as a fail-over takes"


class Action(Enum):
    """What goes with a step."""

    TAKE_OVER = "begin a new epoch and serve"
    RESUME = "serve again, in the same epoch"
    FOLLOW = "let the other serve"
    SUSPEND = "serve nobody until the peer has been asked, or is silent"
    RESIGN = "let the other take over"
    ASK = "ask the peer to resign"
    FAIL = "end: a person has to decide"


TABLE: Final[dict[tuple[State, Event], tuple[State, Action]]] = {
    # A primary that starts waits for a fail-over time before clients can make it active: it may
    # have been gone, and the backup be active.
    (State.PRIMARY, Event.PEER_BACKUP): (State.ACTIVE, Action.TAKE_OVER),
    (State.PRIMARY, Event.OLDER_ACTIVE): (State.PASSIVE, Action.FOLLOW),
    (State.PRIMARY, Event.EQUAL_ACTIVE): (State.PASSIVE, Action.FOLLOW),
    (State.PRIMARY, Event.NEWER_ACTIVE): (State.PASSIVE, Action.FOLLOW),
    (State.PRIMARY, Event.OLDER_RESIGNED): (State.ACTIVE, Action.TAKE_OVER),
    (State.PRIMARY, Event.NEWER_RESIGNED): (State.ACTIVE, Action.TAKE_OVER),
    (State.PRIMARY, Event.CLIENT_VOTE): (State.ACTIVE, Action.TAKE_OVER),
    (State.PRIMARY, Event.SEIZE): (State.ACTIVE, Action.TAKE_OVER),
    # A backup that has never heard the primary serves only if an operator wants it to.
    (State.BACKUP, Event.OLDER_ACTIVE): (State.PASSIVE, Action.FOLLOW),
    (State.BACKUP, Event.EQUAL_ACTIVE): (State.PASSIVE, Action.FOLLOW),
    (State.BACKUP, Event.NEWER_ACTIVE): (State.PASSIVE, Action.FOLLOW),
    (State.BACKUP, Event.OLDER_RESIGNED): (State.ACTIVE, Action.TAKE_OVER),
    (State.BACKUP, Event.NEWER_RESIGNED): (State.ACTIVE, Action.TAKE_OVER),
    (State.BACKUP, Event.SEIZE): (State.ACTIVE, Action.TAKE_OVER),
    # An active stays so when the other comes back: there is no automatic fail-back.
    (State.ACTIVE, Event.EQUAL_ACTIVE): (State.FAILED, Action.FAIL),
    (State.ACTIVE, Event.NEWER_ACTIVE): (State.PASSIVE, Action.FOLLOW),
    (State.ACTIVE, Event.SWITCH): (State.RESIGNED, Action.RESIGN),
    (State.ACTIVE, Event.STALL): (State.SUSPENDED, Action.SUSPEND),
    # A passive takes over from a peer that restarts or resigns, or is silent while clients ask.
    (State.PASSIVE, Event.PEER_PRIMARY): (State.ACTIVE, Action.TAKE_OVER),
    (State.PASSIVE, Event.PEER_BACKUP): (State.ACTIVE, Action.TAKE_OVER),
    (State.PASSIVE, Event.EQUAL_PASSIVE): (State.FAILED, Action.FAIL),
    (State.PASSIVE, Event.OLDER_RESIGNED): (State.ACTIVE, Action.TAKE_OVER),
    (State.PASSIVE, Event.NEWER_RESIGNED): (State.ACTIVE, Action.TAKE_OVER),
    (State.PASSIVE, Event.CLIENT_VOTE): (State.ACTIVE, Action.TAKE_OVER),
    (State.PASSIVE, Event.SWITCH): (State.PASSIVE, Action.ASK),
    (State.PASSIVE, Event.SEIZE): (State.ACTIVE, Action.TAKE_OVER),
    # A suspended one serves again when the peer has answered what it said since it woke.
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
    # One that has resigned waits for the other, and takes its place back if that is gone.
    (State.RESIGNED, Event.NEWER_ACTIVE): (State.PASSIVE, Action.FOLLOW),
    (State.RESIGNED, Event.NEWER_RESIGNED): (State.ACTIVE, Action.TAKE_OVER),
    (State.RESIGNED, Event.CLIENT_VOTE): (State.ACTIVE, Action.TAKE_OVER),
    (State.RESIGNED, Event.SEIZE): (State.ACTIVE, Action.TAKE_OVER),
}
"""(state, event): (next state, action)."""


def heard(state: State, epoch: int, own_epoch: int) -> Event | None:
    """Return the event that a peer's word is, beside our own epoch; None for one that says nothing.

    Epochs of two servers are never equal as long as each keeps to its own (`next_epoch`), so what
    is done upon equal ones is for peers that do not.
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


def next_epoch(role: Role, known: int) -> int:
    """Return the first epoch after `known` that may be ours: a primary's are odd, a backup's even.

    So no two servers ever reign in the same epoch, whatever both of them have missed or forgotten.
    """
    epoch = known + 1
    return epoch if epoch % 2 == role % 2 else epoch + 1
