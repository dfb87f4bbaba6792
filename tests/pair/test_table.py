"""The table of the state machine matches the Guide's, and is complete."""

from __future__ import annotations

import itertools

import pytest
from tests.pair.diagram import DRAWING, draw, words_for

from requite.protocols.binarystar.reasons import failure, no_switch
from requite.protocols.binarystar.table import (
    TABLE,
    Action,
    Event,
    PairRole,
    State,
    heard,
    next_epoch,
)

_FAILS = (State.FAILED, Action.FAIL)
_TAKES_OVER = (State.ACTIVE, Action.TAKE_OVER)
_FOLLOWS = (State.PASSIVE, Action.FOLLOW)

# The Guide, chapter 4, "Binary Star Implementation". Missing pairs of state and event change
# nothing there. A vote is a client's request after the peer's expiry. The Guide has no epochs, so
# all are equal here.
GUIDE = {
    (State.PRIMARY, Event.PEER_BACKUP): _TAKES_OVER,
    (State.PRIMARY, Event.EQUAL_ACTIVE): _FOLLOWS,
    (State.PRIMARY, Event.CLIENT_VOTE): _TAKES_OVER,
    (State.BACKUP, Event.EQUAL_ACTIVE): _FOLLOWS,
    (State.ACTIVE, Event.EQUAL_ACTIVE): _FAILS,
    (State.PASSIVE, Event.PEER_PRIMARY): _TAKES_OVER,
    (State.PASSIVE, Event.PEER_BACKUP): _TAKES_OVER,
    (State.PASSIVE, Event.EQUAL_PASSIVE): _FAILS,
    (State.PASSIVE, Event.CLIENT_VOTE): _TAKES_OVER,
}
_GUIDES_STATES = (State.PRIMARY, State.BACKUP, State.ACTIVE, State.PASSIVE)
_GUIDES_EVENTS = (
    Event.PEER_PRIMARY,
    Event.PEER_BACKUP,
    Event.EQUAL_ACTIVE,
    Event.EQUAL_PASSIVE,
    Event.CLIENT_REQUEST,
    Event.CLIENT_VOTE,
)


@pytest.mark.parametrize("key", list(itertools.product(_GUIDES_STATES, _GUIDES_EVENTS)), ids=str)
def test_the_table_matches_the_guides_state_machine(key: tuple[State, Event]) -> None:
    assert TABLE.get(key) == GUIDE.get(key)


def derived_step(state: State, event: Event) -> tuple[State, Action] | None:
    """Derive the action from the meaning of an event, without the table."""
    waits = state not in (State.ACTIVE, State.FAILED)
    _, _, said = event.name.partition("_")
    if state is State.FAILED or event is Event.CLIENT_REQUEST:
        return None
    if event is Event.STALL:
        return (State.SUSPENDED, Action.SUSPEND) if state is State.ACTIVE else None
    if event is Event.SWITCH:
        resigns, asks = (State.RESIGNED, Action.RESIGN), (State.PASSIVE, Action.ASK)
        return {State.ACTIVE: resigns, State.PASSIVE: asks}.get(state)
    if event is Event.SEIZE:
        return _TAKES_OVER if waits else None
    if event is Event.CLIENT_VOTE:  # a backup that never met its primary has no vote
        return _TAKES_OVER if waits and state is not State.BACKUP else None
    if said == "RESIGNED":  # if both have resigned, the one with the newer epoch prevails
        is_younger = state is State.RESIGNED and event is not Event.NEWER_RESIGNED
        return _TAKES_OVER if waits and not is_younger else None
    if said == "ACTIVE":
        return _step_for_an_active_peer(state, event)
    return _step_for_a_peer_that_does_not_serve(state, event)


def _step_for_an_active_peer(state: State, event: Event) -> tuple[State, Action] | None:
    if state in (State.PRIMARY, State.BACKUP):  # a starting server yields whatever the epoch is
        return _FOLLOWS
    if event is Event.NEWER_ACTIVE:
        return None if state is State.PASSIVE else _FOLLOWS
    return _FAILS if (state, event) == (State.ACTIVE, Event.EQUAL_ACTIVE) else None


def _step_for_a_peer_that_does_not_serve(state: State, event: Event) -> tuple[State, Action] | None:
    if state is State.SUSPENDED:
        if event is Event.NEWER_SUSPENDED:
            return _FOLLOWS
        return _FAILS if event is Event.EQUAL_SUSPENDED else (State.ACTIVE, Action.RESUME)
    if state is State.PASSIVE and event is Event.EQUAL_PASSIVE:
        return _FAILS
    peer_starts = event in (Event.PEER_PRIMARY, Event.PEER_BACKUP)
    if state is State.PASSIVE and peer_starts:
        return _TAKES_OVER
    both_start = (state, event) == (State.PRIMARY, Event.PEER_BACKUP)
    return _TAKES_OVER if both_start else None


@pytest.mark.parametrize("key", list(itertools.product(State, Event)), ids=str)
def test_every_step_follows_from_the_rules(key: tuple[State, Event]) -> None:
    assert TABLE.get(key) == derived_step(*key)


def test_no_event_leaves_failed() -> None:
    assert not [state for state, _ in TABLE if state is State.FAILED]


def test_a_client_request_changes_no_state_while_the_peer_is_alive() -> None:
    assert not [event for _, event in TABLE if event is Event.CLIENT_REQUEST]


@pytest.mark.parametrize(("key", "step"), list(TABLE.items()), ids=str)
def test_actions_fit_their_states(key: tuple[State, Event], step: tuple[State, Action]) -> None:
    state, action = step
    expected = {
        Action.TAKE_OVER: State.ACTIVE,
        Action.RESUME: State.ACTIVE,
        Action.FOLLOW: State.PASSIVE,
        Action.SUSPEND: State.SUSPENDED,
        Action.RESIGN: State.RESIGNED,
        Action.ASK: State.PASSIVE,
        Action.FAIL: State.FAILED,
    }
    assert state is expected[action]
    if action is Action.FAIL:
        assert failure(key[1])


def test_only_a_suspended_server_resumes() -> None:
    assert {key[0] for key, step in TABLE.items() if step[1] is Action.RESUME} == {State.SUSPENDED}


def test_two_connected_servers_never_both_take_over() -> None:
    """For each two states and each order of epochs, at most one of the two becomes active."""
    for own, other in itertools.product(State, State):
        for own_epoch, other_epoch in ((1, 2), (2, 1), (3, 3)):
            mine = heard(other, other_epoch, own_epoch)
            theirs = heard(own, own_epoch, other_epoch)
            steps = [TABLE.get((own, mine)), TABLE.get((other, theirs))] if mine and theirs else []
            actives = [step for step in steps if step and step[0] is State.ACTIVE]
            if {own, other} == {State.PRIMARY, State.PASSIVE}:
                assert len(actives) == 1  # the passive one, whichever role it has
            assert len(actives) <= 1, (own, other, own_epoch, other_epoch)


@pytest.mark.parametrize("state", [s for s in State if s is not State.FAILED])
@pytest.mark.parametrize(("epoch", "age"), [(4, "OLDER"), (5, "EQUAL"), (6, "NEWER")])
def test_the_event_of_a_heartbeat_depends_on_its_epoch(state: State, epoch: int, age: str) -> None:
    event = heard(state, epoch, 5)
    expected = {
        State.PRIMARY: Event.PEER_PRIMARY,
        State.BACKUP: Event.PEER_BACKUP,
        State.PASSIVE: Event.EQUAL_PASSIVE if epoch == 5 else Event.PEER_PASSIVE,
        State.RESIGNED: Event.NEWER_RESIGNED if epoch == 6 else Event.OLDER_RESIGNED,
    }
    assert event is (expected.get(state) or Event[f"{age}_{state.name}"])


def test_a_heartbeat_of_a_failed_peer_is_no_event() -> None:
    assert heard(State.FAILED, 7, 5) is None


def test_primary_and_backup_never_choose_the_same_epoch() -> None:
    primary = {next_epoch(PairRole.PRIMARY, known) for known in range(100)}
    backup = {next_epoch(PairRole.BACKUP, known) for known in range(100)}
    assert not primary & backup
    assert all(
        known < next_epoch(role, known) <= known + 2 for role in PairRole for known in range(9)
    )


def test_every_state_that_cannot_switch_has_a_reason() -> None:
    for state in State:
        can = {event for event in (Event.SWITCH, Event.SEIZE) if (state, event) in TABLE}
        assert len(can) == 2 or no_switch(state, is_draining=False)
    assert no_switch(State.ACTIVE, is_draining=True) == "this server is being stopped"


def test_the_diagram_is_up_to_date() -> None:
    """To update the diagram, run `python -m tests.pair.diagram`."""
    assert DRAWING.read_text(encoding="utf-8") == draw()


def test_the_diagram_shows_every_transition() -> None:
    groups: dict[tuple[State, State], set[Event]] = {}
    for (state, event), (following, _) in TABLE.items():
        if following is not state:
            groups.setdefault((state, following), set()).add(event)
    drawing = draw()
    assert drawing.count('class="arrow"') == len(groups)
    for events in groups.values():
        assert all(f">{word}</text>" in drawing for word in words_for(events))
