"""A worker's messages about whether its broker is reachable, on virtual time."""

from __future__ import annotations

from requite.worker.standing import NO_TROUBLE, Report, Trouble

REFUSED = Trouble("cannot connect to tcp://a:1: connection refused")
UNANSWERED = Trouble("tcp://a:1 has not answered READY", patience_s=3.0)
ENDED = Trouble("the connection to tcp://a:1 ended: reset")


class Bench:
    """A report that is updated every tenth of a second, and the messages that it has emitted."""

    def __init__(self) -> None:
        self.report = Report("echo", "tcp://a:1")
        self.tenths = 1000
        self.messages: list[tuple[float, str]] = []

    def advance(self, seconds: float, trouble: Trouble = NO_TROUBLE) -> list[str]:
        """Advance the clock in one state; return the messages emitted meanwhile."""
        before = len(self.messages)
        for _ in range(round(seconds * 10)):
            if text := self.report.update(trouble, self.tenths / 10):
                self.messages.append((round(self.tenths / 10 - 100, 1), text))
            self.tenths += 1
        return [text for _, text in self.messages[before:]]


def test_a_broker_that_connects_soon_causes_no_message() -> None:
    bench = Bench()
    assert bench.advance(0.9, REFUSED) == []
    assert not bench.report.is_served
    assert bench.advance(3600) == []
    assert bench.report.is_served


def test_an_unreachable_broker_is_reported_once_and_then_once_a_minute() -> None:
    bench = Bench()
    bench.advance(125, REFUSED)
    assert bench.messages == [
        (1.0, f"waiting to serve echo: {REFUSED.text}; retrying"),
        (61.0, f"not serving echo for 61 s: {REFUSED.text}; retrying"),
        (121.0, f"not serving echo for 121 s: {REFUSED.text}; retrying"),
    ]
    assert bench.advance(1) == ["serving echo at tcp://a:1, after 125.0 s"]


def test_a_connected_broker_that_does_not_answer_is_reported_later() -> None:
    bench = Bench()
    bench.advance(4, UNANSWERED)
    assert bench.messages == [(3.0, f"waiting to serve echo: {UNANSWERED.text}; retrying")]


def test_another_reason_is_reported_soon_and_each_once_a_minute() -> None:
    bench = Bench()
    for _ in range(300):  # two alternating reasons, for a minute
        bench.advance(0.1, REFUSED)
        bench.advance(0.1, UNANSWERED)
    reasons = [(at, REFUSED.text in text) for at, text in bench.messages]
    assert reasons == [(1.0, True), (6.1, False)]


def test_the_rate_of_changing_reasons_is_limited() -> None:
    """A peer may give a different reason with each refusal."""
    bench = Bench()
    for number in range(600):
        bench.advance(0.1, Trouble(f"reason {number}"))
    assert 2 <= len(bench.messages) <= 60 / 5 + 1


def test_a_loss_and_the_reconnect_are_reported_at_once() -> None:
    bench = Bench()
    bench.advance(10)
    assert bench.advance(0.1, ENDED) == [f"no longer serving echo: {ENDED.text}; retrying"]
    bench.advance(7.9, ENDED)
    assert bench.advance(60) == ["serving echo at tcp://a:1 again, after 8.0 s"]
    assert bench.advance(0.1, ENDED) == [f"no longer serving echo: {ENDED.text}; retrying"]


def test_the_rate_of_messages_about_a_flapping_broker_is_limited() -> None:
    bench = Bench()
    for _ in range(300):  # for ten minutes
        bench.advance(1.5)
        bench.advance(0.5, ENDED)
    assert len(bench.messages) <= 2 * 11
