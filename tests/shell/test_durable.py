"""What `submit`, `result` and `forget` do, step by step, with made-up answers and time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.spec.requirement import requirement

from requite.client import durable
from requite.client.asking import Asking
from requite.client.durable import Ask, Durable, Pause, Script
from requite.errors import (
    CallError,
    CallTimeout,
    Cancelled,
    ConfigurationError,
    NoService,
    Overloaded,
    Poisoned,
    RemoteFailure,
    RemoteViolation,
    StoreUnavailable,
    TransportError,
    UnknownTicket,
)
from requite.request import Reply
from requite.speaks.mdp import client_plan
from requite.speaks.plans import ClientSettings
from requite.speaks.registry import read_endpoints

TICKET = "0123456789ABCDEF0123456789abcdef"
SETTINGS = ClientSettings(None, 64, None, None, 64, 1 << 20)


class Clock:
    """Seconds that pass when a script pauses, or asks."""

    def __init__(self) -> None:
        self.at = 100.0

    def now(self) -> float:
        return self.at


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    monkeypatch.setattr(durable, "clock", clock)
    return clock


def durable_at(url: str = "mdp://host/echo", timeout: float | None = 30.0) -> Durable:
    endpoints = read_endpoints(url)
    traits = client_plan(endpoints, SETTINGS).traits
    asking = Asking(endpoints.service, timeout, traits, 1 << 20)
    return Durable(endpoints.service, asking, traits)


class Play:
    """Plays a script; each question gets the next of `answers`, the last one again and again."""

    def __init__(
        self, clock: Clock, script: Script[Any], *answers: Any, takes_s: float = 0
    ) -> None:
        self.asked: list[Ask] = []
        self.pauses: list[float] = []
        self.result: Any = None
        self._clock = clock
        self._answers = list(answers)
        self._takes_s = takes_s
        try:
            step = next(script)
            while True:
                step = self._take(script, step)
        except StopIteration as end:
            self.result = end.value

    def _take(self, script: Script[Any], step: Ask | Pause) -> Ask | Pause:
        if isinstance(step, Pause):
            self.pauses.append(step.until - self._clock.at)
            self._clock.at = max(self._clock.at, step.until)
            return script.send(None)
        self.asked.append(step)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        self._clock.at += self._takes_s
        if isinstance(answer, CallError):
            return script.throw(answer)
        return script.send(Reply(answer))


OK = (b"200", TICKET.encode())
PENDING = (b"300",)
LOST = TransportError("the connection was lost")


# --- submit ---------------------------------------------------------------------------------------
def test_a_submission_names_its_service_in_front_of_the_body_and_returns_the_ticket(clock):
    play = Play(clock, durable_at().submit([b"a", b"b"], None, b"", ...), OK)
    assert play.result == TICKET
    [asked] = play.asked
    assert (asked.service, asked.frames) == ("titanic.request", (b"echo", b"a", b"b"))


def test_a_submission_has_a_key_of_its_own(clock):
    keys = [
        Play(clock, durable_at().submit(b"x", None, b"", ...), OK).asked[0].key for _ in range(2)
    ]
    assert len(keys[0]) == 24
    assert keys[0] != keys[1]


def test_the_users_key_is_kept(clock):
    play = Play(clock, durable_at().submit(b"x", "other", b"order 7", ...), OK)
    assert (play.asked[0].key, play.asked[0].frames[0]) == (b"order 7", b"other")


@pytest.mark.parametrize("passing", [LOST, CallTimeout("late"), (b"500 the disk is full",)])
def test_a_submission_is_made_again_under_its_key(clock, passing):
    play = Play(clock, durable_at().submit(b"x", None, b"", ...), passing, passing, OK)
    assert play.result == TICKET
    assert len(play.asked) == 3
    assert len({asked.key for asked in play.asked}) == 1


@pytest.mark.parametrize("dialect", ["0.1", "0.2"])
def test_without_keys_a_submission_whose_answer_was_lost_is_not_made_again(clock, dialect):
    script = durable_at(f"mdp://host/echo?dialect={dialect}").submit(b"x", None, b"", ...)
    with pytest.raises(CallTimeout):
        Play(clock, script, CallTimeout("late"), OK)


def test_older_dialects_refuse_the_users_key_when_the_call_is_made():
    endpoints = read_endpoints("mdp://host/echo?dialect=0.2")
    traits = client_plan(endpoints, SETTINGS).traits
    with pytest.raises(ConfigurationError, match="idempotency"):
        traits.check(key=b"order 7", partials=False, idempotent=True)


def test_a_refusal_is_told_when_the_time_is_over(clock):
    script = durable_at(timeout=5.0).submit(b"x", None, b"", ...)
    with pytest.raises(StoreUnavailable, match="the disk is full"):
        Play(clock, script, (b"500 the disk is full",))
    assert clock.at == pytest.approx(105.0)


def test_a_submission_that_can_never_be_kept_is_not_made_again(clock):
    with pytest.raises(ConfigurationError, match="no service name"):
        Play(clock, durable_at().submit(b"x", None, b"", ...), (b"400 no service name",))
    assert clock.at == 100.0


@pytest.mark.parametrize(
    "error",
    [
        NoService("no worker serves titanic.request"),
        RemoteFailure("refused"),
        Cancelled("the client was closed"),
    ],
)
def test_what_stays_so_ends_a_submission_at_once(clock, error):
    with pytest.raises(type(error)):
        Play(clock, durable_at().submit(b"x", None, b"", ...), error)
    assert clock.at == 100.0


@pytest.mark.parametrize("answer", [(b"200",), (b"200", b"../../etc/passwd"), (b"201",), (b"",)])
def test_an_answer_that_is_none_of_titanics_is_a_violation(clock, answer):
    with pytest.raises(RemoteViolation):
        Play(clock, durable_at().submit(b"x", None, b"", ...), answer)


def test_a_service_without_a_name_is_refused_before_anything_is_asked():
    with pytest.raises(ConfigurationError, match="service"):
        durable_at("mdp://host").submit(b"x", None, b"", ...)


# --- result ---------------------------------------------------------------------------------------
@requirement("tsp:status:300")
def test_a_result_is_asked_for_with_growing_pauses_until_it_is_there(clock):
    answers = [PENDING] * 30 + [(b"200", b"a", b"b")]
    play = Play(clock, durable_at().result(TICKET, None), *answers)
    assert play.result.frames == (b"a", b"b")
    assert play.result.elapsed == pytest.approx(clock.at - 100.0)
    assert {asked.frames for asked in play.asked} == {(TICKET.encode(),)}
    assert play.pauses[0] <= 0.005
    assert all(0.5 <= pause <= 1.0 for pause in play.pauses[15:])


def test_a_reply_without_a_body_is_an_empty_one(clock):
    assert Play(clock, durable_at().result(TICKET, 1.0), (b"200 OK",)).result.body == b""


def test_a_result_that_does_not_come_in_time_is_a_timeout_at_that_time(clock):
    with pytest.raises(CallTimeout, match="it is stored") as caught:
        Play(clock, durable_at().result(TICKET, 2.0), PENDING)
    assert clock.at == pytest.approx(102.0)
    assert caught.value.may_have_executed


@requirement("tsp:status:400", "tsp:status:text")
@pytest.mark.parametrize(
    ("frames", "kind"),
    [
        ((b"400 given up", b"poisoned", b"boom"), Poisoned),
        ((b"400 poisoned", b"other"), UnknownTicket),  # no text decides anything (9/TSP)
        ((b"400",), UnknownTicket),
    ],
)
def test_what_will_never_have_a_result_is_told_at_once(clock, frames, kind):
    with pytest.raises(kind):
        Play(clock, durable_at().result(TICKET, None), frames)
    assert clock.at == 100.0


@requirement("tsp:status:500")
def test_a_result_is_waited_for_while_titanic_or_the_broker_is_away(clock):
    away = [LOST, NoService("nobody"), CallTimeout("late"), (b"500 the disk failed",)] * 5
    play = Play(clock, durable_at().result(TICKET, None), *away, (b"200", b"here"))
    assert play.result.body == b"here"


@pytest.mark.parametrize(("dialect", "limit_s"), [("0.1", 5.0), ("0.2", 5.0), ("0.3", 60.0)])
def test_where_brokers_are_silent_no_question_takes_all_of_the_time(clock, dialect, limit_s):
    script = durable_at(f"mdp://host/echo?dialect={dialect}").result(TICKET, 60.0)
    play = Play(clock, script, (b"200", b"x"))
    assert play.asked[0].until - 100.0 == pytest.approx(limit_s)


def test_that_nobody_keeps_requests_is_not_hidden_by_the_end_of_the_time(clock):
    answers = [NoService("no worker serves titanic.reply"), CallTimeout("late")]
    with pytest.raises(NoService):
        Play(clock, durable_at().result(TICKET, 8.0), *answers, takes_s=3.0)


def test_what_stood_in_the_way_last_is_what_is_told(clock):
    with pytest.raises(NoService):
        Play(clock, durable_at().result(TICKET, 3.0), PENDING, NoService("nobody"), takes_s=0.5)


@pytest.mark.parametrize("error", [NoService, Overloaded, CallTimeout, TransportError])
def test_a_question_that_never_left_does_not_say_that_the_request_has_not_run(clock, error):
    problem = error("the question never left", may_have_executed=False, attempts=2)
    for ask in (durable_at().result, durable_at().forget):
        with pytest.raises(error, match=f"left; request {TICKET} is stored and may have") as caught:
            Play(clock, ask(TICKET, 2.0), problem, takes_s=0.5)
        assert caught.value.may_have_executed
        assert caught.value.attempts == 2


@pytest.mark.parametrize("first", [CallTimeout("late"), LOST])
def test_a_submission_may_have_been_stored_by_an_earlier_attempt(clock, first):
    problem = Overloaded("all slots are taken", may_have_executed=False)
    with pytest.raises(Overloaded, match="taken; an earlier attempt may have") as caught:
        Play(clock, durable_at().submit(b"x", None, b"", 3.0), first, problem, takes_s=0.5)
    assert caught.value.may_have_executed


def test_a_submission_that_never_left_was_not_stored(clock):
    problem = Overloaded("all slots are taken", may_have_executed=False)
    with pytest.raises(Overloaded, match=r"^all slots are taken$") as caught:
        Play(clock, durable_at().submit(b"x", None, b"", 3.0), problem, takes_s=0.5)
    assert not caught.value.may_have_executed


# --- forget, and tickets --------------------------------------------------------------------------
def test_to_forget_is_tried_again_until_it_is_done(clock):
    play = Play(clock, durable_at().forget(TICKET, ...), LOST, (b"500 later",), (b"200",))
    assert len(play.asked) == 3


@requirement("tsp:status:400")
def test_what_the_keeper_does_not_know_is_forgotten_already(clock):
    play = Play(clock, durable_at().forget(TICKET, ...), (b"400 never heard of it",))
    assert len(play.asked) == 1
    assert play.pauses == []


@pytest.mark.parametrize(
    "ticket", ["", "abc", TICKET + "0", TICKET[:-1] + "G", "../../../../../../etc/passwd", "é" * 32]
)
def test_a_ticket_is_32_hex_digits(ticket):
    for ask in (durable_at().result, durable_at().forget):
        with pytest.raises(ConfigurationError, match="32 hex digits"):
            ask(ticket, 1.0)


def test_bytes_are_no_ticket():
    with pytest.raises(ConfigurationError, match="32 hex digits"):
        durable_at().result(TICKET.encode(), 1.0)  # type: ignore[arg-type]


def test_what_was_known_before_the_last_question_was_late_is_what_is_told(clock):
    answers = [PENDING, CallTimeout("the deadline passed before it was made")]
    with pytest.raises(CallTimeout, match="it is stored"):
        Play(clock, durable_at().result(TICKET, 2.0), *answers)
    answers = [(b"500 the disk is full",), CallTimeout("late")]
    with pytest.raises(StoreUnavailable, match="the disk is full"):
        Play(clock, durable_at().submit(b"x", None, b"", 2.0), *answers, takes_s=1.5)
