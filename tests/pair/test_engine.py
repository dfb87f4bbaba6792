"""One server of a pair: every state with every event, its clock, its epochs, its connections."""

from __future__ import annotations

from math import inf

import pytest
from tests.pair.hand import OWN_INSTANCE, Bench

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
    """Let an event happen. In each epoch but our own, `NEWER` is two beyond: the peer's parity does
    not matter here, only which is greater."""
    peer = {Event.PEER_PRIMARY: State.PRIMARY, Event.PEER_BACKUP: State.BACKUP}
    bench.engine._doubt.is_there = False  # what is said is an answer
    match event:
        case Event.CLIENT_REQUEST | Event.CLIENT_VOTE | Event.SWITCH | Event.SEIZE:
            is_silent = event in (Event.CLIENT_VOTE, Event.SEIZE)
            bench.engine._other.liveness.heard_at = -inf if is_silent else inf
            if event in (Event.CLIENT_REQUEST, Event.CLIENT_VOTE):
                bench.vote()
            else:
                bench.switch()
        case Event.STALL:
            bench.stand_still(1.8)
            bench.feed(Wake())
        case Event.PEER_PRIMARY | Event.PEER_BACKUP:
            bench.hear(peer[event], bench.epoch)
        case Event.PEER_PASSIVE:
            bench.hear(State.PASSIVE, bench.epoch + 2)
        case _:
            age, _, state = event.name.partition("_")
            bench.hear(State[state], max(0, bench.epoch + 2 * _EVENTS_BY_AGE[age]))


@pytest.mark.parametrize("event", list(Event), ids=lambda event: event.name)
@pytest.mark.parametrize(
    ("role", "state"),
    [(role, state) for role in PairRole for state in State if state in _POSSIBLE[role]],
    ids=lambda each: each.name,
)
def test_every_state_with_every_event(role: PairRole, state: State, event: Event) -> None:
    bench = Bench(role)
    bench.become(state)
    if state in (State.PRIMARY, State.BACKUP):
        bench.engine.epoch = 5  # else nothing would be older
    epoch, serving = bench.epoch, bench.serves
    cause(bench, event)
    expected, _ = TABLE.get((state, event), (state, None))
    assert bench.state is expected
    assert bench.serves == (expected is State.ACTIVE)
    if expected is State.ACTIVE and not serving and bench.epoch != epoch:
        assert bench.epoch > epoch
        assert bench.epoch % 2 == role % 2
    if state is not State.FAILED and state is not expected:
        assert bench.last_word().state is expected  # the peer is told at once
        assert bench.views[-1].state is expected


# --- time -----------------------------------------------------------------------------------------
def test_it_speaks_once_per_heartbeat() -> None:
    bench = Bench()
    bench.join()
    assert len(bench.words()) == 1
    for _ in range(10):
        bench.pass_time(1.0)
        bench.hear(State.BACKUP, link="peer", wants_answer=False, role=PairRole.BACKUP)
    assert bench.serves
    said = [word.number for word in bench.words()]
    assert said == list(range(said[0], said[0] + len(said)))
    assert 10 <= len(said) <= 12  # and at once when it met its peer, and took over


def test_a_primary_that_starts_waits_two_heartbeats_for_its_peer() -> None:
    bench = Bench(PairRole.PRIMARY)
    bench.pass_time(1.99)
    assert not bench.vote()
    bench.pass_time(0.01)
    assert bench.vote()
    assert bench.epoch == 1


def test_a_backup_that_starts_is_not_made_active_by_clients() -> None:
    bench = Bench(PairRole.BACKUP)
    bench.pass_time(60.0)
    assert not bench.vote()
    bench.switch()
    assert bench.serves


def test_a_passive_one_takes_over_two_heartbeats_after_the_last_word_and_not_without_a_vote() -> (
    None
):
    bench = Bench(PairRole.BACKUP)
    bench.become(State.PASSIVE)
    bench.pass_time(1.99)
    assert not bench.vote()
    bench.pass_time(0.01)
    assert bench.state is State.PASSIVE
    assert bench.views[-1].peer_is_silent
    assert bench.vote()
    assert bench.epoch == 2


def test_the_longer_heartbeat_holds() -> None:
    bench = Bench(PairRole.BACKUP)
    bench.join()
    bench.hear(State.ACTIVE, 1, interval_ms=5000)
    bench.pass_time(9.9)
    assert not bench.vote()
    bench.pass_time(0.1)
    assert bench.vote()


def test_an_absurd_heartbeat_is_taken_for_the_longest() -> None:
    bench = Bench(PairRole.BACKUP)
    bench.join()
    bench.hear(State.ACTIVE, 1, interval_ms=0xFFFF_FFFF)
    bench.pass_time(60.1)
    assert bench.vote()


def test_an_active_one_serves_as_long_as_it_takes_its_turns() -> None:
    bench = Bench()
    bench.become(State.ACTIVE)
    for _ in range(40):
        bench.pass_time(0.25)
        assert bench.serves


def test_an_active_one_that_stood_still_serves_nobody_before_its_first_turn() -> None:
    bench = Bench()
    bench.become(State.ACTIVE)
    bench.stand_still(1.74)
    assert bench.serves
    bench.stand_still(0.02)
    assert not bench.serves
    assert bench.state is State.ACTIVE  # it has not taken a turn yet
    assert not bench.vote()
    assert bench.state is State.SUSPENDED


def test_a_suspended_one_goes_on_when_its_peer_answers_what_it_said_since() -> None:
    bench = Bench()
    bench.become(State.ACTIVE)
    bench.words()
    before = bench.engine._number
    bench.stand_still(5.0)
    bench.hear(State.PASSIVE, 0, answers=before)  # was unread
    assert bench.state is State.SUSPENDED
    asked = bench.last_word()
    assert asked.state is State.SUSPENDED
    assert asked.wants_answer
    bench.hear(State.PASSIVE, 0, answers=asked.number)
    assert bench.serves
    assert bench.epoch == 1


def test_an_answer_to_a_former_process_is_none() -> None:
    bench = Bench()
    bench.become(State.SUSPENDED)
    bench.hear(State.PASSIVE, 0, answers=1000, heard_instance=OWN_INSTANCE + 7)
    assert bench.state is State.SUSPENDED


def test_an_answer_that_took_as_long_as_a_fail_over_is_none() -> None:
    bench = Bench()
    bench.become(State.SUSPENDED)
    asked = bench.last_word().number
    bench.pass_time(1.8)
    bench.hear(State.PASSIVE, 0, answers=asked)
    assert bench.state is State.SUSPENDED
    bench.pass_time(0.2)  # it asks anew
    bench.hear(State.PASSIVE, 0, answers=bench.last_word().number)
    assert bench.serves


def test_a_suspended_one_steps_down_for_a_newer_epoch_at_once() -> None:
    bench = Bench()
    bench.become(State.ACTIVE)
    bench.stand_still(5.0)
    bench.hear(State.ACTIVE, 2)
    assert bench.state is State.PASSIVE
    assert not any(view.serves for view in bench.views[-2:])


def test_a_suspended_one_that_is_alone_waits_and_then_serves_who_asks() -> None:
    bench = Bench()
    bench.become(State.ACTIVE)
    bench.lose()
    bench.stand_still(60.0)
    assert not bench.vote()
    bench.pass_time(1.99)
    assert not bench.vote()
    bench.pass_time(0.01)
    assert bench.vote()
    assert bench.epoch == 3


def test_a_pause_of_ones_own_is_no_evidence_against_the_peer() -> None:
    bench = Bench(PairRole.BACKUP)
    bench.become(State.PASSIVE)
    bench.stand_still(60.0)
    assert not bench.vote()
    bench.pass_time(1.9)
    assert not bench.vote()


@pytest.mark.parametrize("said", [State.RESIGNED, State.PRIMARY])
def test_after_a_pause_what_was_said_before_it_makes_nobody_serve(said: State) -> None:
    """Its sender may have found us silent, and have become active since."""
    bench = Bench(PairRole.BACKUP)
    bench.become(State.PASSIVE)
    bench.stand_still(0.6)
    bench.hear(said, 1)
    assert bench.state is State.PASSIVE
    bench.hear(said, 1, answers=bench.last_word().number)
    assert bench.serves


def test_a_short_pause_changes_nothing() -> None:
    bench = Bench(PairRole.BACKUP)
    bench.become(State.PASSIVE)
    bench.stand_still(0.4)
    bench.hear(State.RESIGNED, 1)
    assert bench.serves


def test_who_asks_for_an_answer_gets_one_at_once() -> None:
    bench = Bench()
    bench.become(State.ACTIVE)
    bench.words()
    bench.hear(State.PASSIVE, 0)
    assert not bench.words()
    bench.hear(State.PASSIVE, 0, wants_answer=True)
    (word,) = bench.words()
    assert (word.heard_instance, word.heard) == (bench.instance, bench.numbers)


def test_a_joined_peer_counts_as_alive_for_a_while() -> None:
    """It may act upon our first heartbeat."""
    bench = Bench(PairRole.PRIMARY)
    bench.pass_time(5.0)
    bench.join()
    assert not bench.vote()
    bench.pass_time(2.0)
    assert bench.vote()


def test_who_hangs_up_again_and_again_without_a_word_is_not_waited_for() -> None:
    """Something else listens there, such as a broker for its clients."""
    bench = Bench(PairRole.PRIMARY)
    for _ in range(10):
        bench.join()
        bench.lose()
        bench.pass_time(1.0)
    assert bench.engine.view(bench.now).peer_is_silent
    assert bench.vote()
    bench.join()
    bench.hear(State.BACKUP)
    bench.lose()
    bench.pass_time(1.9)
    bench.join()  # a server of the pair, so what it is told counts
    bench.pass_time(1.9)
    assert not bench.engine.view(bench.now).peer_is_silent


# --- epochs ---------------------------------------------------------------------------------------
def test_one_that_has_forgotten_the_epochs_begins_a_new_one() -> None:
    bench = Bench(PairRole.PRIMARY)
    bench.pass_time(2.0)
    bench.vote()
    bench.join()
    bench.hear(State.PASSIVE, 6)
    assert (bench.state, bench.epoch) == (State.ACTIVE, 7)
    assert bench.last_word().epoch == 7


def test_an_older_active_is_told_of_us_at_once() -> None:
    bench = Bench(PairRole.PRIMARY)
    bench.become(State.ACTIVE, 3)
    bench.words()
    bench.hear(State.ACTIVE, 2)
    assert bench.last_word().epoch == 3
    assert bench.serves


def test_a_passive_one_remembers_the_newest_epoch() -> None:
    bench = Bench(PairRole.BACKUP)
    bench.become(State.PASSIVE, 7)
    bench.hear(State.ACTIVE, 1)
    assert bench.epoch == 7
    bench.pass_time(2.0)
    bench.vote()
    assert bench.epoch == 8


# --- what comes twice, late or from somebody else -------------------------------------------------
def test_what_comes_over_two_connections_counts_once() -> None:
    bench = Bench(PairRole.BACKUP)
    bench.join("one")
    bench.join("two", dialled=False)
    bench.hear(State.ACTIVE, 1, link="one")
    bench.pass_time(1.5)
    bench.numbers -= 1
    bench.hear(State.ACTIVE, 1, link="two")
    bench.pass_time(0.5)
    assert bench.engine.view(bench.now).peer_is_silent
    assert len(bench.words("one")) >= 1
    assert bench.words("two")[-1].state is State.PASSIVE


def test_a_peer_that_is_started_anew_ends_the_connections_of_its_former_life() -> None:
    bench = Bench(PairRole.BACKUP)
    bench.join("old")
    bench.hear(State.ACTIVE, 1, link="old")
    bench.instance += 1
    bench.numbers = 0
    bench.join("new", dialled=False)
    bench.hear(State.PRIMARY, 0, link="new")
    assert bench.closed == ["old"]
    assert "the primary has restarted" in bench.warnings[0]
    assert bench.serves
    bench.tell(Switch(2), "old")  # was still to be read
    assert bench.serves


def test_strangers_are_told_nothing_until_they_say_who_they_are() -> None:
    bench = Bench()
    bench.join("stranger", dialled=False)
    bench.pass_time(20.0)
    assert not bench.said["stranger"]
    bench.pass_time(20.0)
    assert bench.closed == ["stranger"]


def test_a_connection_that_has_fallen_silent_is_dialled_anew() -> None:
    bench = Bench()
    bench.become(State.ACTIVE)
    bench.pass_time(3.9)
    assert not bench.closed
    bench.pass_time(0.2)
    assert bench.closed == ["peer"]


def test_there_is_room_for_so_many_connections_and_always_for_our_own() -> None:
    bench = Bench()
    for i in range(LINKS_MAX):
        bench.join(f"stranger {i}", dialled=False)
    bench.pass_time(1.0)
    bench.tell(Ask(), "stranger 0")
    bench.join("operator", dialled=False)
    assert bench.closed == ["stranger 1"]  # has been silent for longest
    bench.tell(Ask(), "operator")
    assert len(bench.said["operator"]) == 1
    bench.join("peer")
    assert len(bench.words()) == 1
    assert bench.closed == ["stranger 1"]
    assert bench.engine.snapshot().links == LINKS_MAX + 1


def test_connections_to_the_other_server_make_room_for_nobody() -> None:
    bench = Bench()
    for i in range(LINKS_MAX):
        bench.join(f"peer {i}")
    bench.join("stranger", dialled=False)
    assert bench.closed == ["stranger"]
    assert bench.engine.snapshot().links == LINKS_MAX


@pytest.mark.parametrize(
    "message", [[b"garbage"], [b""], [], [b"BSTAR\x01\x05no"], [b"BSTAR\x02\x03"], [b"a", b"b"]]
)
def test_garbage_costs_its_connection_and_nothing_else(message: list[bytes]) -> None:
    bench = Bench()
    bench.become(State.ACTIVE)
    bench.join("stranger", dialled=False)
    bench.feed(Received("stranger", [message, [b"BSTAR\x01\x03"]]))
    assert bench.closed == ["stranger"]
    assert len(bench.warnings) == 1
    assert "clients and workers" in bench.warnings[0]
    assert not bench.said["stranger"]
    assert bench.serves


def test_the_same_role_ends_who_has_just_started_and_nobody_else() -> None:
    starting = Bench(PairRole.PRIMARY)
    starting.join()
    starting.hear(State.PRIMARY, 0, role=PairRole.PRIMARY)
    assert starting.state is State.FAILED
    assert "start one as primary and the other as backup" in starting.views[-1].trouble

    running = Bench(PairRole.PRIMARY)
    running.become(State.ACTIVE)
    running.join("other", dialled=False)
    running.hear(State.PRIMARY, 0, role=PairRole.PRIMARY, link="other")
    assert running.serves
    assert running.closed == ["other"]
    assert running.words("other")[0].role is PairRole.PRIMARY  # so that it learns what is wrong


def test_a_failed_peer_counts_as_gone() -> None:
    bench = Bench(PairRole.BACKUP)
    bench.become(State.PASSIVE)
    for _ in range(3):
        bench.pass_time(1.0)
        bench.hear(State.FAILED, 1)
    assert bench.vote()


# --- the rest -------------------------------------------------------------------------------------
def test_it_notes_what_it_becomes() -> None:
    bench = Bench(notes=True)
    bench.become(State.ACTIVE)
    assert [note.facts["state"] for note in bench.notes] == ["PRIMARY", "ACTIVE"]


def test_push_back_is_no_news_and_nonsense_is_a_mistake() -> None:
    bench = Bench()
    bench.become(State.ACTIVE)
    bench.feed(PeerBlocked("peer"))
    bench.feed(PeerWritable("peer"))
    assert bench.serves
    with pytest.raises(LocalViolation, match="does not handle the input"):
        bench.feed(Submit(1, "echo", [b""], inf))


@pytest.mark.parametrize("heartbeat_s", [0.0, 0.009, 31.0, float("nan")])
def test_heartbeats_have_limits(heartbeat_s: float) -> None:
    with pytest.raises(ConfigurationError, match="between 10 ms and 30 s"):
        BinaryStarPolicy(PairRole.PRIMARY, heartbeat_s)


def test_words_name_their_process_and_what_was_heard() -> None:
    bench = Bench()
    bench.join()
    first = bench.last_word()
    assert (first.instance, first.heard_instance, first.heard) == (OWN_INSTANCE, 0, 0)
    bench.hear(State.BACKUP)
    second = bench.last_word()
    assert second.number > first.number
    assert (second.heard_instance, second.heard) == (bench.instance, 1)
