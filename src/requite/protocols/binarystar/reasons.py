"""Messages for operators: why a pair has failed or cannot switch, and what to do."""

from __future__ import annotations

from typing import Final

from requite.protocols.binarystar.table import Event, PairRole, State

_STOP_ONE: Final = (
    "stop both servers, check that each is configured with the other's address and that no other "
    "server uses these addresses, and start the one with the newer data first"
)
_FAILURES: Final = {
    Event.EQUAL_ACTIVE: f"both servers are active, in the same epoch: {_STOP_ONE}",
    Event.EQUAL_SUSPENDED: f"both servers were active in the same epoch: {_STOP_ONE}",
    Event.EQUAL_PASSIVE: f"both servers are passive, so neither serves: {_STOP_ONE}",
}
_NO_SWITCH: Final = {
    State.PRIMARY: "the pair is starting, and no server is active yet; try again in a moment",
    State.BACKUP: "the pair is starting, and no server is active yet; try again in a moment",
    State.ACTIVE: "the other server is silent, so neither would serve",
    State.SUSPENDED: "this server was paused and checks whether it is still active; try again",
    State.RESIGNED: "a switch is in progress",
    State.FAILED: "the pair has failed",
}


def failure(event: Event) -> str:
    """Return why a pair fails upon an event, and what to do."""
    return _FAILURES[event]


def same_role(role: PairRole) -> str:
    """Return the error for a peer with our own role."""
    name = role.name.lower()
    return (
        f"both servers of the pair have the role {name}: start one as primary and the other as"
        " backup, and give neither its own address as its peer's"
    )


def contradiction(event: Event) -> str:
    """Return why a heartbeat over an accepted connection is refused."""
    return (
        f"a heartbeat says that {event.value}, which contradicts this server, and it came over a"
        " connection that this server did not dial, so it may be forged: check which hosts can"
        " reach this address"
    )


def distant(epoch: int, known: int) -> str:
    """Return why a heartbeat with an epoch far ahead is refused."""
    return (
        f"a heartbeat has epoch {epoch}, too far ahead of {known}, the newest epoch that this"
        " server knows: check which hosts can reach this address"
    )


def another_process(role: PairRole) -> str:
    """Return the warning for a new process in the role of a peer that was not silent."""
    name = role.name.lower()
    return f"the {name} has restarted; if this warning repeats, two processes run as {name}"


def misplaced(why: str) -> str:
    """Return the warning for an invalid message on the link of a pair."""
    return f"{why}; clients and workers must use the broker's address, not this one"


def word_for(state: State) -> str:
    """Return a word for a state; PRIMARY and BACKUP, which are also roles, become "starting"."""
    return "starting" if state in (State.PRIMARY, State.BACKUP) else state.name.lower()


def lonely(state: State, peer_is_silent: bool) -> str:
    """Return why a backup does not serve although the primary is silent; "" if it is not so."""
    if state is not State.BACKUP or not peer_is_silent:
        return ""
    return (
        "a backup that has never heard its primary does not serve: start the primary, or make this"
        " one active (`requite pair switch`)"
    )


def outdated(asked: int, epoch: int) -> str:
    """Return why a switch for another epoch is refused."""
    return (
        f"the switch is for epoch {asked}, but this is epoch {epoch}: another switch or a fail-over"
        " came first"
    )


def no_switch(state: State, is_draining: bool) -> str:
    """Return why a switch is not possible."""
    return "this server is being stopped" if is_draining else _NO_SWITCH[state]
