"""The metrics of workers, queues and devices, of shippers and streaming audits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from requite.journal.shipping import Freight
from requite.metrics import catalogue as metrics
from requite.metrics.families import Family, singles
from requite.metrics.handled import Handled
from requite.protocols.pirate.jobs import QueueSnapshot
from requite.protocols.scalability.jobs import DeviceSnapshot


def of_worker(services: Iterable[Handled]) -> list[Family]:
    """Return the metrics of a worker."""
    handled, took = Family(metrics.HANDLED), Family(metrics.HANDLER_TOOK)
    running, waiting = Family(metrics.RUNNING), Family(metrics.WAITING)
    for each in services:
        name = each.service
        handled.add(each.ok, name, "ok")
        handled.add(each.failed, name, "failed")
        handled.add(each.cancelled, name, "cancelled")
        took.add_durations(each.counts, each.took_s, name)
        running.add(each.running, name)
        waiting.add(each.waiting, name)
    return [handled, took, running, waiting]


def of_queue(seen: QueueSnapshot) -> list[Family]:
    """Return the metrics of a queue of the Pirates."""
    workers = Family(metrics.QUEUE_WORKERS)
    workers.add(seen.unready, "unready")
    workers.add(seen.idle, "idle")
    workers.add(seen.busy, "busy")
    single = singles(
        (metrics.QUEUE_REQUESTS, seen.requests),
        (metrics.QUEUE_REPLIES, seen.replies),
        (metrics.QUEUE_CLIENTS, seen.clients),
        (metrics.QUEUE_WAITING, seen.waiting),
    )
    return [*single, workers, _by_reason(metrics.QUEUE_DROPPED, seen.dropped)]


def of_device(seen: DeviceSnapshot) -> list[Family]:
    """Return the metrics of a device of SP."""
    channels, blocked = Family(metrics.DEVICE_CHANNELS), Family(metrics.DEVICE_BLOCKED)
    channels.add(seen.front, "front")
    channels.add(seen.back, "back")
    blocked.add(seen.front_blocked, "front")
    blocked.add(seen.back_blocked, "back")
    single = singles(
        (metrics.DEVICE_REQUESTS, seen.requests),
        (metrics.DEVICE_REPLIES, seen.replies),
        (metrics.DEVICE_HELD, seen.held),
    )
    dropped = _by_reason(metrics.DEVICE_DROPPED, seen.dropped)
    return [*single, channels, blocked, dropped]


def of_shipper(shipped: Freight, logs: int, since_success_s: float, failed: bool) -> list[Family]:
    """Return the metrics of a shipper of journals. `failed`: whether the last pass failed."""
    return singles(
        (metrics.SHIP_SEGMENTS, shipped.segments),
        (metrics.SHIP_BYTES, shipped.bytes),
        (metrics.SHIP_LOGS, logs),
        (metrics.SHIP_FAILED, failed),
        (metrics.SHIP_SINCE_SUCCESS, since_success_s),
    )


def of_watch(
    batches: int, rows: int, since_batch_s: float, alerts: Mapping[str, int]
) -> list[Family]:
    """Return the metrics of a streaming audit. `alerts`: their numbers, by kind."""
    raised = Family(metrics.WATCH_ALERTS)
    for kind, count in alerts.items():
        raised.add(count, kind)
    single = singles(
        (metrics.WATCH_BATCHES, batches),
        (metrics.WATCH_ROWS, rows),
        (metrics.WATCH_SINCE_BATCH, since_batch_s),
    )
    return [*single, raised]


def _by_reason(described: metrics.Described, counts: Mapping[str, int]) -> Family:
    family = Family(described)
    for reason, count in sorted(counts.items()):
        family.add(count, reason)
    return family
