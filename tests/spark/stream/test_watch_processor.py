"""The processor of the streaming audit, without a JVM: alerts, their times, and its state."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester
from tests.spark.events import Event, EventBuilder, Log, call_id, instance, instant

from requite.spark.watch.alerts import RequestWatch
from requite.spark.watch.watched_request import Alert, Patience, WatchedEvent, WatchedRequest

PATIENCE = Patience(grace_s=1.0, settle_s=1.0, longest_deadline_s=60.0, remember_s=30.0)
KEY = call_id(1)


class Watch:
    """A processor, and the events that it reads in batches."""

    def __init__(self, patience: Patience = PATIENCE) -> None:
        self.tester = TwsTester(RequestWatch(patience), timeMode="ProcessingTime")
        self.builder = EventBuilder()
        self.given = 0
        self.at(0.0)

    def at(self, seconds: float) -> list[Row]:
        """Advance the processing time to `seconds` after noon; return the alerts."""
        now = instant(seconds)
        raised = self.tester.setProcessingTime(round(now.timestamp() * 1000))
        return list(raised)

    def read(self) -> list[Row]:
        """Process the events added since the last read, as one batch; return the alerts."""
        new_events, self.given = self.builder.events[self.given :], len(self.builder.events)
        keys = dict.fromkeys(event["request_id"] for event in new_events)
        return [row for key in keys for row in self._read(key, new_events)]

    def _read(self, key: str, new_events: list[Event]) -> list[Row]:
        rows = [
            Row(service=e["service"], **event_columns(e))
            for e in new_events
            if e["request_id"] == key
        ]
        return list(self.tester.test(key, rows))

    def stored(self, key: str = KEY) -> WatchedRequest | None:
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
    return watch.builder.broker()


def kinds(rows: list[Row]) -> list[str]:
    return [row.kind for row in rows]


def test_a_missed_deadline_is_alerted_without_further_events(watch: Watch, broker: Log) -> None:
    broker.add(0.0, "accepted", 1, deadline=5.0)
    broker.add(0.2, "dispatched", 1, worker=instance("w1"), attempt=1)
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
    broker.add(0.0, "accepted", 1, deadline=5.0)
    watch.read()
    assert kinds(watch.at(7.0)) == ["MISSED_DEADLINE"]
    assert watch.stored() is not None
    assert watch.at(36.0) == []
    assert watch.at(37.0) == []
    assert watch.stored() is None
    assert watch.timers == 0


def test_a_request_that_ends_in_time_is_forgotten_without_an_alert(
    watch: Watch, broker: Log
) -> None:
    watch.builder.call(1, 0.0, broker=broker)
    assert watch.read() == []
    assert watch.stored() is not None
    assert watch.timers == 1
    assert watch.at(30.0) == []
    assert watch.stored() is None
    assert watch.timers == 0


def test_an_outcome_in_a_later_batch_cancels_the_deadline(watch: Watch, broker: Log) -> None:
    broker.add(0.0, "accepted", 1, deadline=5.0)
    watch.read()
    watch.at(4.0)
    broker.add(4.0, "answered", 1, outcome="OK")
    watch.read()
    assert watch.timers == 1
    assert watch.at(20.0) == []
    assert watch.at(34.0) == []
    assert watch.stored() is None


@pytest.mark.parametrize(("ended_at", "alert"), [(4.5, "ENDED_LATE"), (6.5, "LATE")])
def test_an_outcome_after_the_alert_raises_a_second_one(
    watch: Watch, broker: Log, ended_at: float, alert: str
) -> None:
    broker.add(0.0, "accepted", 1, deadline=5.0)
    watch.read()
    assert kinds(watch.at(6.0)) == ["MISSED_DEADLINE"]
    broker.add(ended_at, "answered", 1, outcome="OK")
    watch.read()
    assert kinds(watch.at(8.0)) == [alert]
    assert watch.at(100.0) == []
    assert watch.stored() is None


def test_a_late_outcome_is_alerted_even_if_all_events_are_read_at_once(
    watch: Watch, broker: Log
) -> None:
    broker.add(0.0, "accepted", 1, deadline=5.0)
    broker.add(3600.0, "answered", 1, outcome="OK")
    watch.read()
    assert kinds(watch.at(1.0)) == ["LATE"]


def test_a_request_without_deadline_has_the_longest_one(watch: Watch, broker: Log) -> None:
    broker.add(0.0, "accepted", 1)
    watch.read()
    assert watch.at(60.9) == []
    (alert,) = watch.at(61.0)
    assert alert.deadline == instant(60.0)


def test_a_second_outcome_is_alerted_also_in_a_later_batch(watch: Watch, broker: Log) -> None:
    watch.builder.call(1, 0.0, broker=broker)
    watch.read()
    watch.at(2.0)
    broker.add(2.0, "answered", 1, outcome="OK")
    assert watch.read() == []
    (alert,) = watch.at(3.0)
    assert alert.kind == Alert.DUPLICATE_OUTCOME
    assert [e["kind"] for e in json.loads(alert.evidence)].count("answered") == 2


def test_a_request_that_was_accepted_twice_is_alerted(watch: Watch) -> None:
    client = watch.builder.client()
    client.add(0.0, "accepted", 1, deadline=5.0)
    client.add(0.1, "accepted", 1, deadline=5.0)
    watch.read()
    assert kinds(watch.at(1.0)) == ["ACCEPTED_TWICE"]


@pytest.mark.parametrize("kind", ["dispatched", "answered", "expired"])
def test_an_orphan_is_alerted_after_the_settling_time(watch: Watch, broker: Log, kind: str) -> None:
    broker.add(0.0, kind, 1)
    assert watch.read() == []
    assert watch.at(0.9) == []
    (alert,) = watch.at(1.0)
    assert alert.kind == Alert.ORPHAN
    assert alert.deadline is None


def test_a_request_whose_acceptance_is_read_a_little_later_is_no_orphan(watch: Watch) -> None:
    old, new = watch.builder.broker("b1"), watch.builder.broker("b2")
    old.add(0.5, "answered", 1, outcome="OK")
    watch.read()
    watch.at(0.8)
    new.add(0.1, "accepted", 1, deadline=5.0)
    watch.read()
    assert "ORPHAN" not in kinds(watch.at(3.0))


def test_the_log_of_the_client_overrides_that_of_the_broker(watch: Watch, broker: Log) -> None:
    client = watch.builder.client()
    watch.builder.call(1, 0.0, broker=broker)
    watch.read()
    watch.at(0.5)
    client.add(0.0, "accepted", 1, deadline=5.0)  # its outcome was never written
    watch.read()
    assert watch.at(5.5) == []
    assert kinds(watch.at(6.0)) == ["MISSED_DEADLINE"]


def test_a_request_that_moved_to_another_broker_raises_no_alert(watch: Watch) -> None:
    first, second = watch.builder.broker("b1"), watch.builder.broker("b2")
    first.add(0.0, "accepted", 1, deadline=2.0)
    watch.read()
    second.add(1.0, "accepted", 1, deadline=5.0)
    second.add(1.5, "answered", 1, outcome="OK")
    watch.read()
    assert watch.at(20.0) == []


def test_events_read_long_after_the_deadline_get_time_to_settle(watch: Watch, broker: Log) -> None:
    broker.add(0.0, "accepted", 1, deadline=5.0)
    watch.at(1000.0)
    watch.read()
    broker.add(0.1, "answered", 1, outcome="OK")
    watch.at(1000.5)
    watch.read()
    assert watch.at(1020.0) == []


def test_without_memory_ended_requests_leave_no_state() -> None:
    watch = Watch(Patience(remember_s=0.0))
    broker = watch.builder.broker()
    watch.builder.call(1, 0.0, broker=broker)
    broker.add(0.0, "accepted", 2, deadline=5.0)
    watch.read()
    assert watch.stored() is None
    broker.add(1.0, "answered", 2, outcome="OK")
    broker.add(1.0, "accepted", 3, deadline=5.0)
    watch.read()
    assert watch.stored(call_id(2)) is None
    assert watch.timers == 1
    assert [row.request_id for row in watch.at(10.0)] == [call_id(3)]
    assert watch.stored(call_id(3)) is None
    assert watch.timers == 0


def test_the_state_of_a_request_with_many_events_is_bounded(watch: Watch, broker: Log) -> None:
    broker.add(0.0, "accepted", 1, deadline=5.0)
    for number in range(1000):
        broker.add(0.001 * number, "dispatched", 1, attempt=number)
    broker.add(2.0, "accepted", 1, deadline=5.0)
    watch.read()
    case = watch.stored()
    assert case is not None
    assert len(case.events) <= 200
    assert watch.timers == 1


def test_requests_are_judged_separately(watch: Watch, broker: Log) -> None:
    watch.builder.call(1, 0.0, broker=broker)
    broker.add(0.0, "accepted", 2, deadline=5.0)
    watch.read()
    alerts = watch.at(6.0)
    assert [alert.request_id for alert in alerts] == [call_id(2)]


def test_a_watched_request_survives_a_round_trip() -> None:
    case = WatchedRequest(
        "echo", [WatchedEvent(1, "broker-1", 2, "accepted", "broker", deadline=9)], ["ORPHAN"], 7
    )
    assert WatchedRequest.parse(case.text()) == case
