"""`submit`, `result` and `forget`, step by step, with scripted answers and a manual clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.spec.requirement import requirement

from requite.client import durable
from requite.client.call_arguments import SubmitBuilder
from requite.client.durable import Ask, Durable, Pause, Script
from requite.errors import (
    CallError,
    CallTimeout,
    Cancelled,
    ConfigurationError,
    Denied,
    NoService,
    Overloaded,
    Poisoned,
    RemoteFailure,
    RemoteViolation,
    StoreUnavailable,
    TransportError,
    UnknownTicket,
    WorkerLost,
)
from requite.request import Reply
from requite.speaks.mdp import client_plan
from requite.speaks.plans import ClientSettings
from requite.speaks.registry import read_endpoints

TICKET = "0123456789ABCDEF0123456789abcdef"
SETTINGS = ClientSettings(None, 64, None, None, 64, 1 << 20)


class Clock:
    """A clock that advances by the pauses and requests of a script."""

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
    builder = SubmitBuilder(endpoints.service, timeout, traits, 1 << 20)
    return Durable(endpoints.service, builder, traits)


class Play:
    """Runs a script. Each request gets the next of `answers`; the last one repeats."""

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
def test_submit_sends_service_and_body_and_returns_the_ticket(clock):
    play = Play(clock, durable_at().submit([b"a", b"b"], None, b"", ...), OK)
    assert play.result == TICKET
    [asked] = play.asked
    assert (asked.service, asked.frames) == ("titanic.request", (b"echo", b"a", b"b"))


def test_each_submission_has_a_new_key(clock):
    keys = [
        Play(clock, durable_at().submit(b"x", None, b"", ...), OK).asked[0].key for _ in range(2)
    ]
    assert len(keys[0]) == 24
    assert keys[0] != keys[1]


def test_a_given_key_is_used(clock):
    play = Play(clock, durable_at().submit(b"x", "other", b"order 7", ...), OK)
    assert (play.asked[0].key, play.asked[0].frames[0]) == (b"order 7", b"other")


@pytest.mark.parametrize("passing", [LOST, CallTimeout("late"), (b"500 the disk is full",)])
def test_a_submission_is_retried_with_its_key(clock, passing):
    play = Play(clock, durable_at().submit(b"x", None, b"", ...), passing, passing, OK)
    assert play.result == TICKET
    assert len(play.asked) == 3
    assert len({asked.key for asked in play.asked}) == 1


@pytest.mark.parametrize("dialect", ["0.1", "0.2"])
def test_a_submission_without_a_key_is_not_retried_once_sent(clock, dialect):
    script = durable_at(f"mdp://host/echo?dialect={dialect}").submit(b"x", None, b"", ...)
    with pytest.raises(CallTimeout):
        Play(clock, script, CallTimeout("late"), OK)


def test_older_dialects_refuse_a_given_key():
    endpoints = read_endpoints("mdp://host/echo?dialect=0.2")
    traits = client_plan(endpoints, SETTINGS).traits
    with pytest.raises(ConfigurationError, match="idempotency"):
        traits.check(key=b"order 7", partials=False, idempotent=True)


def test_a_refusal_is_raised_at_the_timeout(clock):
    script = durable_at(timeout=5.0).submit(b"x", None, b"", ...)
    with pytest.raises(StoreUnavailable, match="the disk is full"):
        Play(clock, script, (b"500 the disk is full",))
    assert clock.at == pytest.approx(105.0)


def test_a_permanent_refusal_is_not_retried(clock):
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
def test_a_permanent_error_is_raised_at_once(clock, error):
    with pytest.raises(type(error)):
        Play(clock, durable_at().submit(b"x", None, b"", ...), error)
    assert clock.at == 100.0


@pytest.mark.parametrize("answer", [(b"200",), (b"200", b"../../etc/passwd"), (b"201",), (b"",)])
def test_an_invalid_answer_is_a_violation(clock, answer):
    with pytest.raises(RemoteViolation):
        Play(clock, durable_at().submit(b"x", None, b"", ...), answer)


def test_an_empty_service_name_is_refused_at_once():
    with pytest.raises(ConfigurationError, match="service"):
        durable_at("mdp://host").submit(b"x", None, b"", ...)


# --- result ---------------------------------------------------------------------------------------
@requirement("tsp:status:300")
def test_result_polls_with_growing_pauses(clock):
    answers = [PENDING] * 30 + [(b"200", b"a", b"b")]
    play = Play(clock, durable_at().result(TICKET, None), *answers)
    assert play.result.frames == (b"a", b"b")
    assert play.result.elapsed == pytest.approx(clock.at - 100.0)
    assert {asked.frames for asked in play.asked} == {(TICKET.encode(),)}
    assert play.pauses[0] <= 0.005
    assert all(0.5 <= pause <= 1.0 for pause in play.pauses[15:])


def test_a_reply_without_a_body_is_empty(clock):
    assert Play(clock, durable_at().result(TICKET, 1.0), (b"200 OK",)).result.body == b""


def test_a_missing_result_times_out_at_the_deadline(clock):
    with pytest.raises(CallTimeout, match="it is stored") as caught:
        Play(clock, durable_at().result(TICKET, 2.0), PENDING)
    assert clock.at == pytest.approx(102.0)
    assert caught.value.may_have_executed


@requirement("tsp:status:400", "tsp:status:text")
@pytest.mark.parametrize(
    ("frames", "kind"),
    [
        ((b"400 given up", b"poisoned", b"boom"), Poisoned),
        ((b"400 poisoned", b"other"), UnknownTicket),  # the text has no meaning (9/TSP)
        ((b"400",), UnknownTicket),
    ],
)
def test_a_poisoned_or_unknown_request_is_reported_at_once(clock, frames, kind):
    with pytest.raises(kind):
        Play(clock, durable_at().result(TICKET, None), frames)
    assert clock.at == 100.0


@requirement("tsp:status:500")
def test_result_waits_while_titanic_or_the_broker_is_unavailable(clock):
    away = [LOST, NoService("nobody"), CallTimeout("late"), (b"500 the disk failed",)] * 5
    play = Play(clock, durable_at().result(TICKET, None), *away, (b"200", b"here"))
    assert play.result.body == b"here"


@pytest.mark.parametrize(("dialect", "limit_s"), [("0.1", 5.0), ("0.2", 5.0), ("0.3", 60.0)])
def test_a_silent_broker_does_not_use_up_the_timeout(clock, dialect, limit_s):
    script = durable_at(f"mdp://host/echo?dialect={dialect}").result(TICKET, 60.0)
    play = Play(clock, script, (b"200", b"x"))
    assert play.asked[0].until - 100.0 == pytest.approx(limit_s)


def test_a_missing_titanic_is_not_hidden_by_the_timeout(clock):
    answers = [NoService("no worker serves titanic.reply"), CallTimeout("late")]
    with pytest.raises(NoService):
        Play(clock, durable_at().result(TICKET, 8.0), *answers, takes_s=3.0)


def test_the_last_problem_is_raised_at_the_timeout(clock):
    with pytest.raises(NoService):
        Play(clock, durable_at().result(TICKET, 3.0), PENDING, NoService("nobody"), takes_s=0.5)


@pytest.mark.parametrize("error", [NoService, Overloaded, CallTimeout, TransportError])
def test_an_unsent_request_for_a_result_says_nothing_about_its_execution(clock, error):
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


@pytest.mark.parametrize("first", [LOST, WorkerLost("it left"), (b"500 the sync failed",)])
@pytest.mark.parametrize("last", [NoService, Denied, Cancelled])
def test_an_error_that_ends_a_submission_speaks_for_all_its_attempts(clock, first, last):
    problem = last("it did not arrive", may_have_executed=False, attempts=1)
    with pytest.raises(last, match="arrive; an earlier attempt may have been stored") as caught:
        Play(clock, durable_at().submit(b"x", None, b"", ...), first, problem)
    assert caught.value.may_have_executed
    assert caught.value.attempts == 1


def test_a_repeated_submission_without_a_key_may_have_been_stored(clock):
    script = durable_at("mdp://host/echo?dialect=0.2").submit(b"x", None, b"", ...)
    unsent = TransportError("no connection", may_have_executed=False)
    with pytest.raises(TransportError, match="an earlier attempt may have been stored") as caught:
        Play(clock, script, (b"500 the sync failed",), unsent)
    assert caught.value.may_have_executed


def test_a_ticket_in_an_error_does_not_hide_that_the_request_is_stored(clock):
    problem = Denied(f"no right to use {TICKET}", may_have_executed=False)
    with pytest.raises(Denied, match="is stored and may have run") as caught:
        Play(clock, durable_at().result(TICKET, 2.0), problem)
    assert caught.value.may_have_executed


@pytest.mark.parametrize("error", [NoService, Denied, Cancelled])
def test_a_submission_that_never_arrived_was_not_stored(clock, error):
    unsent = Overloaded("all slots are taken", may_have_executed=False)
    problem = error("it did not arrive", may_have_executed=False)
    with pytest.raises(error, match=r"^it did not arrive$") as caught:
        Play(clock, durable_at().submit(b"x", None, b"", ...), unsent, problem)
    assert not caught.value.may_have_executed


def test_an_unsent_submission_was_not_stored(clock):
    problem = Overloaded("all slots are taken", may_have_executed=False)
    with pytest.raises(Overloaded, match=r"^all slots are taken$") as caught:
        Play(clock, durable_at().submit(b"x", None, b"", 3.0), problem, takes_s=0.5)
    assert not caught.value.may_have_executed


# --- forget, and tickets --------------------------------------------------------------------------
def test_forget_retries_until_it_is_confirmed(clock):
    play = Play(clock, durable_at().forget(TICKET, ...), LOST, (b"500 later",), (b"200",))
    assert len(play.asked) == 3


@requirement("tsp:status:400")
def test_forget_accepts_an_unknown_ticket(clock):
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


def test_a_ticket_must_be_a_string():
    with pytest.raises(ConfigurationError, match="32 hex digits"):
        durable_at().result(TICKET.encode(), 1.0)  # type: ignore[arg-type]


def test_a_late_last_request_does_not_hide_the_previous_answer(clock):
    answers = [PENDING, CallTimeout("the deadline passed before it was made")]
    with pytest.raises(CallTimeout, match="it is stored"):
        Play(clock, durable_at().result(TICKET, 2.0), *answers)
    answers = [(b"500 the disk is full",), CallTimeout("late")]
    with pytest.raises(StoreUnavailable, match="the disk is full"):
        Play(clock, durable_at().submit(b"x", None, b"", 2.0), *answers, takes_s=1.5)
