"""What a worker says of the places that it dials, and when: on virtual time."""

from __future__ import annotations

from requite.worker.standing import NO_TROUBLE, Report, Trouble

REFUSED = Trouble("cannot connect to tcp://a:1: connection refused")
UNANSWERED = Trouble("tcp://a:1 has not answered READY", patience_s=3.0)
ENDED = Trouble("the connection to tcp://a:1 ended: reset")


class Bench:
    """A report that is looked at every tenth of a second, and what it has said by then."""

    def __init__(self) -> None:
        self.report = Report("echo", "tcp://a:1")
        self.tenths = 1000
        self.said: list[tuple[float, str]] = []

    def go_on(self, seconds: float, trouble: Trouble = NO_TROUBLE) -> list[str]:
        """Let time pass in one state; return what was said meanwhile."""
        before = len(self.said)
        for _ in range(round(seconds * 10)):
            if text := self.report.update(trouble, self.tenths / 10):
                self.said.append((round(self.tenths / 10 - 100, 1), text))
            self.tenths += 1
        return [text for _, text in self.said[before:]]


def test_a_broker_that_is_there_soon_is_not_spoken_of() -> None:
    bench = Bench()
    assert bench.go_on(0.9, REFUSED) == []
    assert not bench.report.is_served
    assert bench.go_on(3600) == []
    assert bench.report.is_served


def test_what_is_waited_for_is_said_once_and_then_once_a_minute() -> None:
    bench = Bench()
    bench.go_on(125, REFUSED)
    assert bench.said == [
        (1.0, f"waiting to serve echo: {REFUSED.text}; retrying"),
        (61.0, f"not serving echo for 61 s: {REFUSED.text}; retrying"),
        (121.0, f"not serving echo for 121 s: {REFUSED.text}; retrying"),
    ]
    assert bench.go_on(1) == ["serving echo at tcp://a:1, after 125.0 s"]


def test_a_broker_that_answers_late_by_its_protocol_has_more_time() -> None:
    bench = Bench()
    bench.go_on(4, UNANSWERED)
    assert bench.said == [(3.0, f"waiting to serve echo: {UNANSWERED.text}; retrying")]


def test_another_reason_is_said_soon_and_each_once_a_minute() -> None:
    bench = Bench()
    for _ in range(300):  # two reasons in turns, for a minute
        bench.go_on(0.1, REFUSED)
        bench.go_on(0.1, UNANSWERED)
    reasons = [(at, REFUSED.text in text) for at, text in bench.said]
    assert reasons == [(1.0, True), (6.1, False)]


def test_reasons_without_end_are_not_all_said() -> None:
    """A peer may put something else into each of its refusals."""
    bench = Bench()
    for number in range(600):
        bench.go_on(0.1, Trouble(f"reason {number}"))
    assert 2 <= len(bench.said) <= 60 / 5 + 1


def test_a_loss_is_said_at_once_and_again_when_it_is_back() -> None:
    bench = Bench()
    bench.go_on(10)
    assert bench.go_on(0.1, ENDED) == [f"no longer serving echo: {ENDED.text}; retrying"]
    bench.go_on(7.9, ENDED)
    assert bench.go_on(60) == ["serving echo at tcp://a:1 again, after 8.0 s"]
    assert bench.go_on(0.1, ENDED) == [f"no longer serving echo: {ENDED.text}; retrying"]


def test_a_broker_that_comes_and_goes_is_not_spoken_of_each_time() -> None:
    bench = Bench()
    for _ in range(300):  # for ten minutes
        bench.go_on(1.5)
        bench.go_on(0.5, ENDED)
    assert len(bench.said) <= 2 * 11
