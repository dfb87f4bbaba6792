"""What a manager tells of itself: as JSON, and as Prometheus reads it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from requite.pool.engine import PoolStatus
from requite.pool.manager.managed import Managed
from requite.speaks.url import redact

_PREFIX: Final = "requite_pool"


def status_of(manager: Managed) -> dict[str, Any]:
    """Return everything that is known, as JSON has it."""
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
    """Return each group that is expected, has a queue, or runs, in the order of keys."""
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
    """Return the figures in the text format of Prometheus (version 0.0.4)."""
    pool = _escaped(manager.config.pool.name)
    lines = []
    for name, kind, about, samples in _figures(manager):
        lines += [f"# HELP {_PREFIX}_{name} {about}", f"# TYPE {_PREFIX}_{name} {kind}"]
        for labels, value in samples.items():
            lines.append(f'{_PREFIX}_{name}{{pool="{pool}"{labels}}} {value}')
    return "\n".join(lines) + "\n"


def _figures(manager: Managed) -> Iterator[tuple[str, str, str, dict[str, int]]]:
    seen = manager.snapshot()
    running = seen.groups.running or {}
    workers = sum(group.workers or 0 for group in running.values())
    statuses = Counter(str(group.status) for group in seen.state.groups.values())
    reasons = seen.dead_letters.by_reason
    yield "active", "gauge", "Whether this manager decides.", {"": int(manager.state == "active")}
    yield (
        "groups",
        "gauge",
        "Groups that are expected, by status.",
        {f',status="{each}"': statuses[each] for each in ("active", "unbound")},
    )
    yield "running_groups", "gauge", "Groups that have workers.", {"": len(running)}
    yield "workers", "gauge", "Workers, as far as drivers count them.", {"": workers}
    yield "failing_groups", "gauge", "Groups that wait after failures.", {"": seen.groups.pausing}
    waiting = sum(seen.orphans.waiting.values())
    yield "orphans", "gauge", "Requests that wait for their queue.", {"": waiting}
    forwarded = seen.orphans.forwarded
    yield "orphans_forwarded_total", "counter", "Orphans handed to their queue.", {"": forwarded}
    yield (
        "dead_letters_total",
        "counter",
        "Dead letters, by reason.",
        {f',reason="{_escaped(reason)}"': count for reason, count in sorted(reasons.items())},
    )
    poison = seen.dead_letters.poison
    yield "poisoned_total", "counter", "Requests kept in the poison queue.", {"": poison}


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
