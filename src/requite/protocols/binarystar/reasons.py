"""What people are told: why a pair has failed, why there was no switch, and what to do."""

from __future__ import annotations

from typing import Final

from requite.protocols.binarystar.table import Event, Role, State

_STOP_ONE: Final = (
    "stop both servers, see that each is configured with the other's address and that nobody else "
    "has it, and start the one that has the newer data first"
)
_FAILURES: Final = {
    Event.EQUAL_ACTIVE: f"both servers are active, in the same epoch: {_STOP_ONE}",
    Event.EQUAL_SUSPENDED: f"both servers were active in the same epoch: {_STOP_ONE}",
    Event.EQUAL_PASSIVE: f"both servers are passive, so nobody serves: {_STOP_ONE}",
}
_NO_SWITCH: Final = {
    State.PRIMARY: "it has not been settled yet who is active; try again in a moment",
    State.BACKUP: "it has not been settled yet who is active; try again in a moment",
    State.ACTIVE: "the other server is silent, so nobody would serve",
    State.SUSPENDED: "it is being settled whether this server is still active; try again",
    State.RESIGNED: "a switch is under way",
    State.FAILED: "the pair has failed",
}


def failure(event: Event) -> str:
    """Return why a pair fails upon an event, and what to do."""
    return _FAILURES[event]


def same_role(role: Role) -> str:
    """Return what is wrong when the peer has our own role."""
    name = role.name.lower()
    return (
        f"both servers of the pair say that they are the {name}: start one as primary and the other"
        " as backup, and give neither its own address as its peer's"
    )


def another_process(role: Role) -> str:
    """Return what may be wrong when a new process speaks for a peer that was not silent."""
    name = role.name.lower()
    return (
        f"the {name} has been started anew; if this is said again and again there are two of them"
    )


def misplaced(why: str) -> str:
    """Return what may be wrong when somebody says what does not belong on the link of a pair."""
    return f"{why}; clients and workers that come to the address of a pair have the wrong one"


def word_for(state: State) -> str:
    """Return a word for a state. That a server is the primary or the backup is told apart."""
    return "starting" if state in (State.PRIMARY, State.BACKUP) else state.name.lower()


def lonely(state: State, peer_is_silent: bool) -> str:
    """Return why a server waits although nobody else serves, and what to do; "" for any other."""
    if state is not State.BACKUP or not peer_is_silent:
        return ""
    return (
        "a backup that has never heard its primary serves nobody: start the primary, or tell this"
        " one to serve (`requite pair switch`)"
    )


def outdated(asked: int, epoch: int) -> str:
    """Return why a switch is void that was meant for another epoch."""
    return (
        f"epoch {asked} is over, this is epoch {epoch}: somebody has switched meanwhile, or a"
        " server has taken over"
    )


def no_switch(state: State, is_draining: bool) -> str:
    """Return why an operator's switch is not possible."""
    return "this server is being stopped" if is_draining else _NO_SWITCH[state]
