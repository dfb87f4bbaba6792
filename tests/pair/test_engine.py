"""One server of a pair: every state with every event, timing, epochs and connections."""

from __future__ import annotations

from math import inf

import pytest
from tests.pair.bench import OWN_INSTANCE, Bench

from requite.engine import PeerBlocked, PeerWritable, Received, Submit, Wake
from requite.errors import ConfigurationError, LocalViolation
from requite.protocols.binarystar.links import LINKS_MAX
from requite.protocols.binarystar.policy import BinaryStarPolicy
from requite.protocols.binarystar.table import TABLE, Event, PairRole, State
from requite.protocols.binarystar.wire import Ask, Switch

_EVENTS_BY_AGE = {"OLDER": -1, "EQUAL": 0, "NEWER": 1}
_POSSIBLE = {
    PairRole.PRIMARY: set(State) - {State.BACKUP},
    PairRole.BACKUP: set(State) - {State.PRIMARY},
}


def cause(bench: Bench, event: Event) -> None:
    """Make an event happen. For events of another epoch, the peer's epoch is two above or below our
    own: its parity does not matter here, only the order."""
    peer = {Event.PEER_PRIMARY: State.PRIMARY, Event.PEER_BACKUP: State.BACKUP}
    bench.engine._doubt.is_there = False  # treat what the peer sends as an answer
    match event:
        case Event.CLIENT_REQUEST | Event.CLIENT_VOTE | Event.SWITCH | Event.SEIZE:
            is_silent = event in (Event.CLIENT_VOTE, Event.SEIZE)
            bench.engine._other.liveness.heard_at = -inf if is_silent else inf
            if event in (Event.CLIENT_REQUEST, Event.CLIENT_VOTE):
                bench.vote()
            else:
                bench.switch()
        case Event.STALL:
            bench.pause(1.8)
            bench.feed(Wake())
        case Event.PEER_PRIMARY | Event.PEER_BACKUP:
            bench.receive_heartbeat(peer[event], bench.epoch)
        case Event.PEER_PASSIVE:
            bench.receive_heartbeat(State.PASSIVE, bench.epoch + 2)
        case _:
            age, _, state = event.name.partition("_")
            bench.receive_heartbeat(State[state], max(0, bench.epoch + 2 * _EVENTS_BY_AGE[age]))


@pytest.mark.parametrize("event", list(Event), ids=lambda event: event.name)
@pytest.mark.parametrize(
    ("role", "state"),
    [(role, state) for role in PairRole for state in State if state in _POSSIBLE[role]],
    ids=lambda each: each.name,
)
def test_every_state_with_every_event(role: PairRole, state: State, event: Event) -> None:
    bench = Bench(role)
    bench.bring_into(state)
    if state in (State.PRIMARY, State.BACKUP):
        bench.engine.epoch = 5  # so that an older epoch exists
    epoch, serving = bench.epoch, bench.serves
    cause(bench, event)
    expected, _ = TABLE.get((state, event), (state, None))
    assert bench.state is expected
    assert bench.serves == (expected is State.ACTIVE)
    if expected is State.ACTIVE and not serving and bench.epoch != epoch:
        assert bench.epoch > epoch
        assert bench.epoch % 2 == role % 2
    if state is not State.FAILED and state is not expected:
        assert bench.last_heartbeat().state is expected  # the peer learns the new state at once
        assert bench.views[-1].state is expected


# --- time -----------------------------------------------------------------------------------------
def test_a_heartbeat_is_sent_once_per_interval() -> None:
    bench = Bench()
    bench.join()
    assert len(bench.heartbeats()) == 1
    for _ in range(10):
        bench.advance(1.0)
        bench.receive_heartbeat(State.BACKUP, link="peer", wants_answer=False, role=PairRole.BACKUP)
    assert bench.serves
    said = [word.number for word in bench.heartbeats()]
    assert said == list(range(said[0], said[0] + len(said)))
    assert 10 <= len(said) <= 12  # one more when it met its peer, and one when it took over


def test_a_starting_primary_waits_two_intervals_for_its_peer() -> None:
    bench = Bench(PairRole.PRIMARY)
    bench.advance(1.99)
    assert not bench.vote()
    bench.advance(0.01)
    assert bench.vote()
    assert bench.epoch == 1


def test_clients_cannot_make_a_starting_backup_active() -> None:
    bench = Bench(PairRole.BACKUP)
    bench.advance(60.0)
    assert not bench.vote()
    bench.switch()
    assert bench.serves


def test_a_passive_server_takes_over_on_a_vote_after_two_silent_intervals() -> None:
    bench = Bench(PairRole.BACKUP)
    bench.bring_into(State.PASSIVE)
    bench.advance(1.99)
    assert not bench.vote()
    bench.advance(0.01)
    assert bench.state is State.PASSIVE
    assert bench.views[-1].peer_is_silent
    assert bench.vote()
    assert bench.epoch == 2


def test_the_longer_of_two_heartbeat_intervals_applies() -> None:
    bench = Bench(PairRole.BACKUP)
    bench.join()
    bench.receive_heartbeat(State.ACTIVE, 1, interval_ms=5000)
    bench.advance(9.9)
    assert not bench.vote()
    bench.advance(0.1)
    assert bench.vote()


def test_a_peers_heartbeat_interval_is_capped() -> None:
    bench = Bench(PairRole.BACKUP)
    bench.join()
    bench.receive_heartbeat(State.ACTIVE, 1, interval_ms=0xFFFF_FFFF)
    bench.advance(60.1)
    assert bench.vote()


def test_an_active_server_serves_while_it_takes_its_turns() -> None:
    bench = Bench()
    bench.bring_into(State.ACTIVE)
    for _ in range(40):
        bench.advance(0.25)
        assert bench.serves


def test_a_paused_active_server_stops_serving_before_its_next_turn() -> None:
    bench = Bench()
    bench.bring_into(State.ACTIVE)
    bench.pause(1.74)
    assert bench.serves
    bench.pause(0.02)
    assert not bench.serves
    assert bench.state is State.ACTIVE  # no turn has passed yet
    assert not bench.vote()
    assert bench.state is State.SUSPENDED


def test_a_suspended_server_resumes_when_its_peer_answers_a_new_heartbeat() -> None:
    bench = Bench()
    bench.bring_into(State.ACTIVE)
    bench.heartbeats()
    before = bench.engine._number
    bench.pause(5.0)
    bench.receive_heartbeat(State.PASSIVE, 0, answers=before)  # sent before the pause, and unread
    assert bench.state is State.SUSPENDED
    asked = bench.last_heartbeat()
    assert asked.state is State.SUSPENDED
    assert asked.wants_answer
    bench.receive_heartbeat(State.PASSIVE, 0, answers=asked.number)
    assert bench.serves
    assert bench.epoch == 1


def test_an_answer_to_a_former_process_is_ignored() -> None:
    bench = Bench()
    bench.bring_into(State.SUSPENDED)
    bench.receive_heartbeat(State.PASSIVE, 0, answers=1000, heard_instance=OWN_INSTANCE + 7)
    assert bench.state is State.SUSPENDED


def test_an_answer_later_than_the_lease_is_ignored() -> None:
    bench = Bench()
    bench.bring_into(State.SUSPENDED)
    asked = bench.last_heartbeat().number
    bench.advance(1.8)
    bench.receive_heartbeat(State.PASSIVE, 0, answers=asked)
    assert bench.state is State.SUSPENDED
    bench.advance(0.2)  # it sends a new heartbeat that wants an answer
    bench.receive_heartbeat(State.PASSIVE, 0, answers=bench.last_heartbeat().number)
    assert bench.serves


def test_a_suspended_server_steps_down_at_once_for_a_newer_epoch() -> None:
    bench = Bench()
    bench.bring_into(State.ACTIVE)
    bench.pause(5.0)
    bench.receive_heartbeat(State.ACTIVE, 2)
    assert bench.state is State.PASSIVE
    assert not any(view.serves for view in bench.views[-2:])


def test_a_suspended_server_without_a_peer_takes_over_on_a_vote_after_two_intervals() -> None:
    bench = Bench()
    bench.bring_into(State.ACTIVE)
    bench.lose()
    bench.pause(60.0)
    assert not bench.vote()
    bench.advance(1.99)
    assert not bench.vote()
    bench.advance(0.01)
    assert bench.vote()
    assert bench.epoch == 3


def test_a_pause_of_this_process_does_not_count_as_silence_of_the_peer() -> None:
    bench = Bench(PairRole.BACKUP)
    bench.bring_into(State.PASSIVE)
    bench.pause(60.0)
    assert not bench.vote()
    bench.advance(1.9)
    assert not bench.vote()


@pytest.mark.parametrize("said", [State.RESIGNED, State.PRIMARY])
def test_a_heartbeat_from_before_a_pause_does_not_cause_a_take_over(said: State) -> None:
    """The sender may have become active since, because this server was silent."""
    bench = Bench(PairRole.BACKUP)
    bench.bring_into(State.PASSIVE)
    bench.pause(0.6)
    bench.receive_heartbeat(said, 1)
    assert bench.state is State.PASSIVE
    bench.receive_heartbeat(said, 1, answers=bench.last_heartbeat().number)
    assert bench.serves


def test_a_short_pause_changes_nothing() -> None:
    bench = Bench(PairRole.BACKUP)
    bench.bring_into(State.PASSIVE)
    bench.pause(0.4)
    bench.receive_heartbeat(State.RESIGNED, 1)
    assert bench.serves


def test_a_heartbeat_that_wants_an_answer_is_answered_at_once() -> None:
    bench = Bench()
    bench.bring_into(State.ACTIVE)
    bench.heartbeats()
    bench.receive_heartbeat(State.PASSIVE, 0)
    assert not bench.heartbeats()
    bench.receive_heartbeat(State.PASSIVE, 0, wants_answer=True)
    (word,) = bench.heartbeats()
    assert (word.heard_instance, word.heard) == (bench.instance, bench.numbers)


def test_a_new_connection_counts_as_a_live_peer_for_two_intervals() -> None:
    """The peer may act upon this server's first heartbeat."""
    bench = Bench(PairRole.PRIMARY)
    bench.advance(5.0)
    bench.join()
    assert not bench.vote()
    bench.advance(2.0)
    assert bench.vote()


def test_connections_that_end_without_a_heartbeat_do_not_count_as_a_live_peer() -> None:
    """Something other than a server of a pair listens there, such as a broker for its clients."""
    bench = Bench(PairRole.PRIMARY)
    for _ in range(10):
        bench.join()
        bench.lose()
        bench.advance(1.0)
    assert bench.engine.view(bench.now).peer_is_silent
    assert bench.vote()
    bench.join()
    bench.receive_heartbeat(State.BACKUP)
    bench.lose()
    bench.advance(1.9)
    bench.join()  # it has proved to be a server of the pair, so its connection counts
    bench.advance(1.9)
    assert not bench.engine.view(bench.now).peer_is_silent


# --- epochs ---------------------------------------------------------------------------------------
def test_a_restarted_server_exceeds_the_newest_epoch_of_its_peer() -> None:
    bench = Bench(PairRole.PRIMARY)
    bench.advance(2.0)
    bench.vote()
    bench.join()
    bench.receive_heartbeat(State.PASSIVE, 6)
    assert (bench.state, bench.epoch) == (State.ACTIVE, 7)
    assert bench.last_heartbeat().epoch == 7


def test_an_active_peer_of_an_older_epoch_is_answered_at_once() -> None:
    bench = Bench(PairRole.PRIMARY)
    bench.bring_into(State.ACTIVE, 3)
    bench.heartbeats()
    bench.receive_heartbeat(State.ACTIVE, 2)
    assert bench.last_heartbeat().epoch == 3
    assert bench.serves


def test_a_passive_server_remembers_the_newest_epoch() -> None:
    bench = Bench(PairRole.BACKUP)
    bench.bring_into(State.PASSIVE, 7)
    bench.receive_heartbeat(State.ACTIVE, 1)
    assert bench.epoch == 7
    bench.advance(2.0)
    bench.vote()
    assert bench.epoch == 8


# --- duplicates, late messages and foreign connections --------------------------------------------
def test_a_heartbeat_over_two_connections_counts_once() -> None:
    bench = Bench(PairRole.BACKUP)
    bench.join("one")
    bench.join("two", dialled=False)
    bench.receive_heartbeat(State.ACTIVE, 1, link="one")
    bench.advance(1.5)
    bench.numbers -= 1
    bench.receive_heartbeat(State.ACTIVE, 1, link="two")
    bench.advance(0.5)
    assert bench.engine.view(bench.now).peer_is_silent
    assert len(bench.heartbeats("one")) >= 1
    assert bench.heartbeats("two")[-1].state is State.PASSIVE


def test_connections_of_a_peers_former_process_are_closed_after_its_restart() -> None:
    bench = Bench(PairRole.BACKUP)
    bench.join("old")
    bench.receive_heartbeat(State.ACTIVE, 1, link="old")
    bench.instance += 1
    bench.numbers = 0
    bench.join("new", dialled=False)
    bench.receive_heartbeat(State.PRIMARY, 0, link="new")
    assert bench.closed == ["old"]
    assert "the primary has restarted" in bench.warnings[0]
    assert bench.serves
    bench.receive(Switch(2), "old")  # sent before the restart, and still unread
    assert bench.serves


def test_an_unidentified_connection_gets_no_heartbeats_and_times_out() -> None:
    bench = Bench()
    bench.join("stranger", dialled=False)
    bench.advance(20.0)
    assert not bench.sent["stranger"]
    bench.advance(20.0)
    assert bench.closed == ["stranger"]


def test_a_silent_connection_is_closed() -> None:
    bench = Bench()
    bench.bring_into(State.ACTIVE)
    bench.advance(3.9)
    assert not bench.closed
    bench.advance(0.2)
    assert bench.closed == ["peer"]


def test_the_limit_of_connections_applies_to_accepted_ones_only() -> None:
    bench = Bench()
    for i in range(LINKS_MAX):
        bench.join(f"stranger {i}", dialled=False)
    bench.advance(1.0)
    bench.receive(Ask(), "stranger 0")
    bench.join("operator", dialled=False)
    assert bench.closed == ["stranger 1"]  # silent for longest
    bench.receive(Ask(), "operator")
    assert len(bench.sent["operator"]) == 1
    bench.join("peer")
    assert len(bench.heartbeats()) == 1
    assert bench.closed == ["stranger 1"]
    assert bench.engine.snapshot().links == LINKS_MAX + 1


def test_connections_to_the_other_server_are_not_closed_for_a_new_one() -> None:
    bench = Bench()
    for i in range(LINKS_MAX):
        bench.join(f"peer {i}")
    bench.join("stranger", dialled=False)
    assert bench.closed == ["stranger"]
    assert bench.engine.snapshot().links == LINKS_MAX


@pytest.mark.parametrize(
    "message", [[b"garbage"], [b""], [], [b"BSTAR\x01\x05no"], [b"BSTAR\x02\x03"], [b"a", b"b"]]
)
def test_a_malformed_message_closes_only_its_connection(message: list[bytes]) -> None:
    bench = Bench()
    bench.bring_into(State.ACTIVE)
    bench.join("stranger", dialled=False)
    bench.feed(Received("stranger", [message, [b"BSTAR\x01\x03"]]))
    assert bench.closed == ["stranger"]
    assert len(bench.warnings) == 1
    assert "clients and workers" in bench.warnings[0]
    assert not bench.sent["stranger"]
    assert bench.serves


def test_a_peer_with_the_same_role_fails_only_the_server_that_is_starting() -> None:
    starting = Bench(PairRole.PRIMARY)
    starting.join()
    starting.receive_heartbeat(State.PRIMARY, 0, role=PairRole.PRIMARY)
    assert starting.state is State.FAILED
    assert "start one as primary and the other as backup" in starting.views[-1].trouble

    running = Bench(PairRole.PRIMARY)
    running.bring_into(State.ACTIVE)
    running.join("other", dialled=False)
    running.receive_heartbeat(State.PRIMARY, 0, role=PairRole.PRIMARY, link="other")
    assert running.serves
    assert running.closed == ["other"]
    assert (
        running.heartbeats("other")[0].role is PairRole.PRIMARY
    )  # so that it can report the cause


def test_a_failed_peer_counts_as_silent() -> None:
    bench = Bench(PairRole.BACKUP)
    bench.bring_into(State.PASSIVE)
    for _ in range(3):
        bench.advance(1.0)
        bench.receive_heartbeat(State.FAILED, 1)
    assert bench.vote()


# --- notes, misuse and settings -------------------------------------------------------------------
def test_a_note_is_emitted_for_each_state() -> None:
    bench = Bench(notes=True)
    bench.bring_into(State.ACTIVE)
    assert [note.facts["state"] for note in bench.notes] == ["PRIMARY", "ACTIVE"]


def test_back_pressure_is_ignored_and_a_foreign_input_is_refused() -> None:
    bench = Bench()
    bench.bring_into(State.ACTIVE)
    bench.feed(PeerBlocked("peer"))
    bench.feed(PeerWritable("peer"))
    assert bench.serves
    with pytest.raises(LocalViolation, match="does not handle the input"):
        bench.feed(Submit(1, "echo", [b""], inf))


@pytest.mark.parametrize("heartbeat_s", [0.0, 0.009, 31.0, float("nan")])
def test_a_heartbeat_interval_outside_the_limits_is_refused(heartbeat_s: float) -> None:
    with pytest.raises(ConfigurationError, match="between 10 ms and 30 s"):
        BinaryStarPolicy(PairRole.PRIMARY, heartbeat_s)


def test_heartbeats_carry_both_instances_and_the_last_number_received() -> None:
    bench = Bench()
    bench.join()
    first = bench.last_heartbeat()
    assert (first.instance, first.heard_instance, first.heard) == (OWN_INSTANCE, 0, 0)
    bench.receive_heartbeat(State.BACKUP)
    second = bench.last_heartbeat()
    assert second.number > first.number
    assert (second.heard_instance, second.heard) == (bench.instance, 1)
