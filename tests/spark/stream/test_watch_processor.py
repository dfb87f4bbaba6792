"""The streaming audit's processor, without a JVM: what it alerts, when, and what it forgets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester
from tests.spark.events import Event, Log, Story, call_id, instance, instant

from requite.spark.watch.alerts import RequestWatch
from requite.spark.watch.watched_request import Alert, Patience, WatchedEvent, WatchedRequest

PATIENCE = Patience(grace_s=1.0, settle_s=1.0, longest_deadline_s=60.0, remember_s=30.0)
KEY = call_id(1)


class Watch:
    """A processor, and what of a story it has been given."""

    def __init__(self, patience: Patience = PATIENCE) -> None:
        self.tester = TwsTester(RequestWatch(patience), timeMode="ProcessingTime")
        self.story = Story()
        self.given = 0
        self.at(0.0)

    def at(self, seconds: float) -> list[Row]:
        """Let time pass until so many seconds after noon; return the alerts."""
        now = instant(seconds)
        raised = self.tester.setProcessingTime(round(now.timestamp() * 1000))
        return list(raised)

    def read(self) -> list[Row]:
        """Give what the story has told since, as one batch; return the alerts."""
        new_events, self.given = self.story.events[self.given :], len(self.story.events)
        keys = dict.fromkeys(event["request_id"] for event in new_events)
        return [row for key in keys for row in self._read(key, new_events)]

    def _read(self, key: str, new_events: list[Event]) -> list[Row]:
        rows = [
            Row(service=e["service"], **event_columns(e))
            for e in new_events
            if e["request_id"] == key
        ]
        return list(self.tester.test(key, rows))

    def kept(self, key: str = KEY) -> WatchedRequest | None:
        value = self.tester.peekValueState("case", key)
        return None if value is None else WatchedRequest.parse(value[0])

    @property
    def timers(self) -> int:
        timers = self.tester.handle._timers
        return sum(len([*timers.listTimers(key)]) for key in timers.getAllKeysWithTimers())


def event_columns(event: Event) -> dict[str, Any]:
    row = {name: event.get(name) for name in WatchedEvent._fields}
    for name in ("ts", "deadline"):
        row[name] = None if row[name] is None else round(row[name].timestamp() * 1e6)
    return row


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def broker(watch: Watch) -> Log:
    return watch.story.broker()


def kinds(rows: list[Row]) -> list[str]:
    return [row.kind for row in rows]


def test_a_missed_deadline_is_alerted_though_nothing_more_is_heard(
    watch: Watch, broker: Log
) -> None:
    broker.tell(0.0, "accepted", 1, deadline=5.0)
    broker.tell(0.2, "dispatched", 1, worker=instance("w1"), attempt=1)
    assert watch.read() == []
    assert watch.at(5.9) == []
    (alert,) = watch.at(6.0)
    assert alert.request_id == KEY
    assert alert.service == "echo"
    assert alert.kind == Alert.MISSED_DEADLINE
    assert alert.deadline == instant(5.0)
    assert alert.noticed_at == instant(6.0)
    events = json.loads(alert.evidence)
    assert [event["kind"] for event in events] == ["accepted", "dispatched"]
    assert events[1] == {
        "ts": "2026-03-02T12:00:00.200000Z", "log": broker.log, "seq": 1, "kind": "dispatched",
        "attempt": 1, "worker": instance("w1"),
    }  # fmt: skip


def test_an_alert_is_raised_once_and_the_request_forgotten(watch: Watch, broker: Log) -> None:
    broker.tell(0.0, "accepted", 1, deadline=5.0)
    watch.read()
    assert kinds(watch.at(7.0)) == ["MISSED_DEADLINE"]
    assert watch.kept() is not None
    assert watch.at(36.0) == []
    assert watch.at(37.0) == []
    assert watch.kept() is None
    assert watch.timers == 0


def test_what_ends_in_time_raises_nothing_and_is_forgotten(watch: Watch, broker: Log) -> None:
    watch.story.call(1, 0.0, broker=broker)
    assert watch.read() == []
    assert watch.kept() is not None
    assert watch.timers == 1
    assert watch.at(30.0) == []
    assert watch.kept() is None
    assert watch.timers == 0


def test_an_end_in_a_later_batch_puts_the_deadline_to_rest(watch: Watch, broker: Log) -> None:
    broker.tell(0.0, "accepted", 1, deadline=5.0)
    watch.read()
    watch.at(4.0)
    broker.tell(4.0, "answered", 1, outcome="OK")
    watch.read()
    assert watch.timers == 1
    assert watch.at(20.0) == []
    assert watch.at(34.0) == []
    assert watch.kept() is None


@pytest.mark.parametrize(("ended_at", "alert"), [(4.5, "ENDED_LATE"), (6.5, "LATE")])
def test_an_end_after_the_alert_takes_it_back(
    watch: Watch, broker: Log, ended_at: float, alert: str
) -> None:
    broker.tell(0.0, "accepted", 1, deadline=5.0)
    watch.read()
    assert kinds(watch.at(6.0)) == ["MISSED_DEADLINE"]
    broker.tell(ended_at, "answered", 1, outcome="OK")
    watch.read()
    assert kinds(watch.at(8.0)) == [alert]
    assert watch.at(100.0) == []
    assert watch.kept() is None


def test_an_end_that_came_too_late_is_alerted_though_all_is_read_at_once(
    watch: Watch, broker: Log
) -> None:
    broker.tell(0.0, "accepted", 1, deadline=5.0)
    broker.tell(3600.0, "answered", 1, outcome="OK")
    watch.read()
    assert kinds(watch.at(1.0)) == ["LATE"]


def test_a_request_without_deadline_has_the_longest_one(watch: Watch, broker: Log) -> None:
    broker.tell(0.0, "accepted", 1)
    watch.read()
    assert watch.at(60.9) == []
    (alert,) = watch.at(61.0)
    assert alert.deadline == instant(60.0)


def test_a_second_outcome_is_alerted_also_in_a_later_batch(watch: Watch, broker: Log) -> None:
    watch.story.call(1, 0.0, broker=broker)
    watch.read()
    watch.at(2.0)
    broker.tell(2.0, "answered", 1, outcome="OK")
    assert watch.read() == []
    (alert,) = watch.at(3.0)
    assert alert.kind == Alert.DUPLICATE_OUTCOME
    assert [e["kind"] for e in json.loads(alert.evidence)].count("answered") == 2


def test_one_that_was_accepted_twice_is_alerted(watch: Watch) -> None:
    client = watch.story.client()
    client.tell(0.0, "accepted", 1, deadline=5.0)
    client.tell(0.1, "accepted", 1, deadline=5.0)
    watch.read()
    assert kinds(watch.at(1.0)) == ["ACCEPTED_TWICE"]


@pytest.mark.parametrize("kind", ["dispatched", "answered", "expired"])
def test_an_orphan_is_alerted_when_other_logs_have_had_their_say(
    watch: Watch, broker: Log, kind: str
) -> None:
    broker.tell(0.0, kind, 1)
    assert watch.read() == []
    assert watch.at(0.9) == []
    (alert,) = watch.at(1.0)
    assert alert.kind == Alert.ORPHAN
    assert alert.deadline is None


def test_an_acceptance_that_is_read_a_little_later_is_no_orphan(watch: Watch) -> None:
    old, new = watch.story.broker("b1"), watch.story.broker("b2")
    old.tell(0.5, "answered", 1, outcome="OK")
    watch.read()
    watch.at(0.8)
    new.tell(0.1, "accepted", 1, deadline=5.0)
    watch.read()
    assert "ORPHAN" not in kinds(watch.at(3.0))


def test_the_client_is_the_authority_where_it_tells(watch: Watch, broker: Log) -> None:
    client = watch.story.client()
    watch.story.call(1, 0.0, broker=broker)
    watch.read()
    watch.at(0.5)
    client.tell(0.0, "accepted", 1, deadline=5.0)  # its end was never written
    watch.read()
    assert watch.at(5.5) == []
    assert kinds(watch.at(6.0)) == ["MISSED_DEADLINE"]


def test_a_request_that_went_from_a_dead_broker_to_the_next_is_in_order(watch: Watch) -> None:
    first, second = watch.story.broker("b1"), watch.story.broker("b2")
    first.tell(0.0, "accepted", 1, deadline=2.0)
    watch.read()
    second.tell(1.0, "accepted", 1, deadline=5.0)
    second.tell(1.5, "answered", 1, outcome="OK")
    watch.read()
    assert watch.at(20.0) == []


def test_what_is_read_long_after_its_deadline_gets_time_to_settle(
    watch: Watch, broker: Log
) -> None:
    broker.tell(0.0, "accepted", 1, deadline=5.0)
    watch.at(1000.0)
    watch.read()
    broker.tell(0.1, "answered", 1, outcome="OK")
    watch.at(1000.5)
    watch.read()
    assert watch.at(1020.0) == []


def test_without_memory_what_has_ended_leaves_nothing() -> None:
    watch = Watch(Patience(remember_s=0.0))
    broker = watch.story.broker()
    watch.story.call(1, 0.0, broker=broker)
    broker.tell(0.0, "accepted", 2, deadline=5.0)
    watch.read()
    assert watch.kept() is None
    broker.tell(1.0, "answered", 2, outcome="OK")
    broker.tell(1.0, "accepted", 3, deadline=5.0)
    watch.read()
    assert watch.kept(call_id(2)) is None
    assert watch.timers == 1
    assert [row.request_id for row in watch.at(10.0)] == [call_id(3)]
    assert watch.kept(call_id(3)) is None
    assert watch.timers == 0


def test_many_events_of_one_request_do_not_pile_up(watch: Watch, broker: Log) -> None:
    broker.tell(0.0, "accepted", 1, deadline=5.0)
    for number in range(1000):
        broker.tell(0.001 * number, "dispatched", 1, attempt=number)
    broker.tell(2.0, "accepted", 1, deadline=5.0)
    watch.read()
    case = watch.kept()
    assert case is not None
    assert len(case.events) <= 200
    assert watch.timers == 1


def test_requests_do_not_mix(watch: Watch, broker: Log) -> None:
    watch.story.call(1, 0.0, broker=broker)
    broker.tell(0.0, "accepted", 2, deadline=5.0)
    watch.read()
    alerts = watch.at(6.0)
    assert [alert.request_id for alert in alerts] == [call_id(2)]


def test_a_case_survives_being_written_down() -> None:
    case = WatchedRequest(
        "echo", [WatchedEvent(1, "broker-1", 2, "accepted", "broker", deadline=9)], ["ORPHAN"], 7
    )
    assert WatchedRequest.parse(case.text()) == case
