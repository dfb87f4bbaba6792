"""The status of a manager: as JSON, and as Prometheus metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from requite.pool.engine import PoolStatus
from requite.pool.manager.managed import Managed
from requite.speaks.url import redact

_PREFIX: Final = "requite_pool"
_Values: TypeAlias = int | Mapping[str, int]


def status_of(manager: Managed) -> dict[str, Any]:
    """Return the full status as JSON values."""
    seen = manager.snapshot()
    return {
        "pool": manager.config.pool.name,
        "instance": manager.config.pool.instance,
        "version": seen.groups.version,
        "state": str(manager.state),
        "broker": redact(manager.config.broker.url) or None,
        "draining": seen.draining,
        "generation": seen.state.generation,
        "groups": groups_of(manager, seen),
        "groups_max": manager.config.limits.groups,
        "orphans": {
            "waiting": sum(seen.orphans.waiting.values()),
            "forwarded": seen.orphans.forwarded,
            "put_back": seen.orphans.put_back,
            "expired": seen.orphans.expired,
        },
        "dead_letters": {
            "in_hand": seen.dead_letters.in_hand,
            "by_reason": dict(seen.dead_letters.by_reason),
            "poison": seen.dead_letters.poison,
        },
        "unknown_reports": seen.unknown_reports,
    }


def groups_of(manager: Managed, seen: PoolStatus) -> list[dict[str, Any]]:
    """Return each group that is expected, has a queue, or runs, sorted by key."""
    running = seen.groups.running or {}
    keys = seen.state.groups.keys() | seen.queues.keys() | running.keys() | manager.flaws.keys()
    rows = []
    for key in sorted(keys):
        expected = seen.state.groups.get(key)
        queue = seen.queues.get(key)
        group = running.get(key)
        rows.append(
            {
                "key": key,
                "expected": None if expected is None else str(expected.status),
                "queue": None if queue is None else str(queue.actual),
                "running": group is not None,
                "workers": None if group is None else group.workers,
                "version": None if group is None else group.version,
                "replacing": key in seen.groups.replacing,
                "messages": manager.seen.get(key),
                "orphans": seen.orphans.waiting.get(key, 0),
                "flaws": list(manager.flaws.get(key, ())),
                "failure": seen.groups.failures.get(key),
            }
        )
    return rows


def metrics_of(manager: Managed) -> str:
    """Return the metrics in the text format of Prometheus (version 0.0.4)."""
    registry = CollectorRegistry()
    registry.register(_PoolCollector(manager))
    return generate_latest(registry).decode()


class _PoolCollector(Collector):
    """Metrics of a manager."""

    def __init__(self, manager: Managed) -> None:
        self._manager = manager

    def collect(self) -> Iterator[Metric]:
        manager = self._manager
        seen = manager.snapshot()
        running = seen.groups.running or {}
        workers = sum(group.workers or 0 for group in running.values())
        statuses = Counter(str(group.status) for group in seen.state.groups.values())
        by_status = {each: statuses[each] for each in ("active", "unbound")}
        waiting = sum(seen.orphans.waiting.values())
        active = int(manager.state == "active")
        letters, orphans = seen.dead_letters, seen.orphans
        yield self._gauge("active", "Whether this manager is active.", active)
        yield self._gauge("groups", "Groups in the target set, by status.", by_status, "status")
        yield self._gauge("groups_max", "Maximum of groups.", manager.config.limits.groups)
        yield self._gauge("running_groups", "Groups that have workers.", len(running))
        yield self._gauge("workers", "Workers, if the driver counts them.", workers)
        yield self._gauge(
            "failing_groups", "Groups in back-off after failures.", seen.groups.pausing
        )
        yield self._gauge("orphans", "Orphaned requests that wait for their queue.", waiting)
        yield self._counter(
            "orphans_forwarded", "Orphaned requests republished to their queue.", orphans.forwarded
        )
        yield self._counter("dead_letters", "Dead letters, by reason.", letters.by_reason, "reason")
        yield self._counter("poisoned", "Requests kept in the poison queue.", letters.poison)

    def _gauge(self, name: str, about: str, values: _Values, label: str = "") -> Metric:
        return self._fill(GaugeMetricFamily, name, about, values, label)

    def _counter(self, name: str, about: str, values: _Values, label: str = "") -> Metric:
        return self._fill(CounterMetricFamily, name, about, values, label)

    def _fill(
        self,
        family: type[GaugeMetricFamily | CounterMetricFamily],
        name: str,
        about: str,
        values: _Values,
        label: str,
    ) -> Metric:
        pool = self._manager.config.pool.name
        labels = ["pool", label] if label else ["pool"]
        metric = family(f"{_PREFIX}_{name}", about, labels=labels)
        if isinstance(values, int):
            metric.add_metric([pool], values)
        else:
            for each, value in sorted(values.items()):
                metric.add_metric([pool, each], value)
        return metric
