"""The response of a manager to `/metrics`, compared with a saved text."""

from __future__ import annotations

from typing import Any, cast

import pytest

from requite.metrics.families import text_of
from requite.pool.config import PoolConfig, PoolSection
from requite.pool.deadletters import DeadLettersStatus
from requite.pool.engine import PoolStatus
from requite.pool.groups import GroupsStatus
from requite.pool.inputs import RunningGroup
from requite.pool.manager.carrier import State
from requite.pool.manager.managed import Managed
from requite.pool.manager.metrics import of_pool
from requite.pool.orphans import OrphansStatus
from requite.pool.tracker import Expected, GroupStatus, PoolState

POOL = 'a "b" \\ c\nd'
LABEL = 'pool="a \\"b\\" \\\\ c\\nd"'

# Saved before a library wrote this text. The library writes `1.0` instead of `1`: equal as numbers.
BUSY = f"""\
# HELP requite_pool_active Whether this manager is active.
# TYPE requite_pool_active gauge
requite_pool_active{{{LABEL}}} 1
# HELP requite_pool_standby Whether this manager stands by while another one is active; it is not \
ready then.
# TYPE requite_pool_standby gauge
requite_pool_standby{{{LABEL}}} 0
# HELP requite_pool_groups Groups in the target set, by status.
# TYPE requite_pool_groups gauge
requite_pool_groups{{{LABEL},status="active"}} 2
requite_pool_groups{{{LABEL},status="unbound"}} 1
# HELP requite_pool_groups_max Maximum of groups.
# TYPE requite_pool_groups_max gauge
requite_pool_groups_max{{{LABEL}}} 1000
# HELP requite_pool_running_groups Groups that have workers.
# TYPE requite_pool_running_groups gauge
requite_pool_running_groups{{{LABEL}}} 3
# HELP requite_pool_workers Workers, if the driver counts them.
# TYPE requite_pool_workers gauge
requite_pool_workers{{{LABEL}}} 5
# HELP requite_pool_failing_groups Groups in back-off after failures.
# TYPE requite_pool_failing_groups gauge
requite_pool_failing_groups{{{LABEL}}} 4
# HELP requite_pool_orphans Orphaned requests that wait for their queue.
# TYPE requite_pool_orphans gauge
requite_pool_orphans{{{LABEL}}} 9
# HELP requite_pool_orphans_forwarded_total Orphaned requests republished to their queue.
# TYPE requite_pool_orphans_forwarded_total counter
requite_pool_orphans_forwarded_total{{{LABEL}}} 12345678
# HELP requite_pool_dead_letters_total Dead letters, by reason.
# TYPE requite_pool_dead_letters_total counter
requite_pool_dead_letters_total{{{LABEL},reason="ex\\"pired"}} 8
requite_pool_dead_letters_total{{{LABEL},reason="maxlen"}} 7
# HELP requite_pool_poisoned_total Requests kept in the poison queue.
# TYPE requite_pool_poisoned_total counter
requite_pool_poisoned_total{{{LABEL}}} 6
"""

IDLE = f"""\
# HELP requite_pool_active Whether this manager is active.
# TYPE requite_pool_active gauge
requite_pool_active{{{LABEL}}} 0
# HELP requite_pool_standby Whether this manager stands by while another one is active; it is not \
ready then.
# TYPE requite_pool_standby gauge
requite_pool_standby{{{LABEL}}} 1
# HELP requite_pool_groups Groups in the target set, by status.
# TYPE requite_pool_groups gauge
requite_pool_groups{{{LABEL},status="active"}} 0
requite_pool_groups{{{LABEL},status="unbound"}} 0
# HELP requite_pool_groups_max Maximum of groups.
# TYPE requite_pool_groups_max gauge
requite_pool_groups_max{{{LABEL}}} 1000
# HELP requite_pool_running_groups Groups that have workers.
# TYPE requite_pool_running_groups gauge
requite_pool_running_groups{{{LABEL}}} 0
# HELP requite_pool_workers Workers, if the driver counts them.
# TYPE requite_pool_workers gauge
requite_pool_workers{{{LABEL}}} 0
# HELP requite_pool_failing_groups Groups in back-off after failures.
# TYPE requite_pool_failing_groups gauge
requite_pool_failing_groups{{{LABEL}}} 0
# HELP requite_pool_orphans Orphaned requests that wait for their queue.
# TYPE requite_pool_orphans gauge
requite_pool_orphans{{{LABEL}}} 0
# HELP requite_pool_orphans_forwarded_total Orphaned requests republished to their queue.
# TYPE requite_pool_orphans_forwarded_total counter
requite_pool_orphans_forwarded_total{{{LABEL}}} 0
# HELP requite_pool_poisoned_total Requests kept in the poison queue.
# TYPE requite_pool_poisoned_total counter
requite_pool_poisoned_total{{{LABEL}}} 0
"""


class Sample:
    """A stub manager with a given state and status."""

    config = PoolConfig(PoolSection(POOL))

    def __init__(self, state: State, status: PoolStatus) -> None:
        self.state = state
        self._status = status

    def snapshot(self) -> PoolStatus:
        """Return the given status."""
        return self._status


def manager(state: State, /, **changed: Any) -> Managed:
    """Return a stub manager with an empty status, except for the `changed` fields."""
    idle: dict[str, Any] = {
        "connected": False,
        "draining": False,
        "is_listed": False,
        "state": PoolState(0, {}),
        "queues": {},
        "groups": GroupsStatus(None, "", frozenset(), 0, {}),
        "orphans": OrphansStatus({}, 0, 0, 0, 0),
        "dead_letters": DeadLettersStatus(0, {}, 0),
        "windows": 0,
        "unknown_reports": 0,
    }
    return cast("Managed", Sample(state, PoolStatus(**{**idle, **changed})))


def busy() -> Managed:
    """Return a stub manager with a value for each metric, and one group without a worker count."""
    statuses = (GroupStatus.ACTIVE, GroupStatus.UNBOUND, GroupStatus.ACTIVE)
    expected = {str(key): Expected(each, 0) for key, each in enumerate(statuses)}
    running = {"0": RunningGroup("v", 2), "1": RunningGroup("v", 3), "9": RunningGroup("v")}
    return manager(
        State.ACTIVE,
        state=PoolState(3, expected),
        groups=GroupsStatus(running, "v", frozenset(), 4, {}),
        orphans=OrphansStatus({"0": 4, "2": 5}, 1, 12_345_678, 2, 3),
        dead_letters=DeadLettersStatus(1, {"maxlen": 7, 'ex"pired': 8}, 6),
    )


def scraped(text: str) -> list[tuple[str, float]]:
    """Return the comment lines with 0, and the name of each sample with its value."""
    lines = []
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        lines.append((line, 0.0) if line.startswith("#") else (name, float(value)))
    return lines


@pytest.mark.parametrize(
    ("sample", "saved"), [(busy(), BUSY), (manager(State.STANDBY), IDLE)], ids=["busy", "idle"]
)
async def test_metrics_equal_the_saved_text(sample: Managed, saved: str) -> None:
    text = await text_of(of_pool(sample))
    assert sorted(scraped(text.decode())) == sorted(scraped(saved))
