"""The status of a manager as JSON."""

from __future__ import annotations

from typing import Any

from requite.pool.engine import PoolStatus
from requite.pool.manager.managed import Managed
from requite.speaks.url import redact


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
