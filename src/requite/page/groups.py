"""The parts of the page of a pool: its manager, its groups, and what happened to them lately."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from requite.page.rendering import TEXT_SIZE, render
from requite.pool.manager.managed import Managed
from requite.pool.manager.status import status_of
from requite.pool.recorder import HISTORY_MAX, GroupEvent, GroupStep
from requite.shell import clock

GROUPS_MAX: Final = 200
"""Groups in the table: those with trouble first, then those with most requests that wait."""

FLAWS_MAX: Final = 4
"""Flaws of a group that are shown."""

_STATES: Final[Mapping[str, tuple[str, str]]] = {
    "active": ("good", "active"),
    "standby": ("note", "stands by: another manager is active"),
    "connecting": ("bad", "connecting"),
    "closed": ("bad", "closed"),
}
_STEPS: Final[Mapping[GroupStep, tuple[str, str]]] = {
    GroupStep.STARTING: ("", "is started"),
    GroupStep.RUNNING: ("good", "runs"),
    GroupStep.STOPPING: ("", "is stopped"),
    GroupStep.STOPPED: ("", "has ended"),
    GroupStep.LOST: ("bad", "has exited"),
    GroupStep.FAILED: ("bad", "could not be started or stopped"),
}
"""What happened to a group, in words, and the class of the words."""


class GroupsView(NamedTuple):
    """The groups that a visitor wants to see: those whose keys contain `filter`."""

    filter: str = ""

    @property
    def query(self) -> str:
        """The view as the query of an address."""
        return urlencode({"q": self.filter}) if self.filter else ""


def view_of(query: Mapping[str, str]) -> GroupsView:
    """Return the view that an address asks for."""
    return GroupsView(query.get("q", "")[:TEXT_SIZE])


class PoolSnapshot(NamedTuple):
    """A manager at one moment: the JSON of `/status`, and the events of its groups, the newest
    first, each with its time (UTC)."""

    status: Mapping[str, Any]
    history: Sequence[tuple[datetime, GroupEvent]]


def snapshot_of(manager: Managed) -> PoolSnapshot:
    """Read a manager."""
    wall, now = datetime.now(UTC), clock.now()
    history = [
        (wall - timedelta(seconds=now - each.at), each) for each in reversed(manager.history)
    ]
    return PoolSnapshot(status_of(manager), history)


class Groups:
    """Makes the parts of the page of a pool."""

    def parts(self, snapshot: PoolSnapshot, view: GroupsView) -> dict[str, str]:
        """Return the HTML of each part that changes, by its id."""
        status = snapshot.status
        css_class, state = _STATES.get(status["state"], ("", status["state"]))
        groups = status["groups"]
        values = {
            "status": status,
            "css_class": css_class,
            "state": state,
            "running": sum(each["running"] for each in groups),
            "waiting": sum(each["messages"] or 0 for each in groups),
            "troubled": sum(map(_has_trouble, groups)),
        }
        return {
            "state": render("_pool.html", values),
            "groups": self._table(groups, view),
            "history": self._history(snapshot, view),
        }

    def _table(self, groups: Sequence[Mapping[str, Any]], view: GroupsView) -> str:
        found = [each for each in groups if _is_wanted(each["key"], view)]
        found.sort(key=_rank)
        values = {
            "groups": found[:GROUPS_MAX],
            "count": len(groups),
            "more": max(0, len(found) - GROUPS_MAX),
            "view": view,
            "flaws_max": FLAWS_MAX,
        }
        return render("_groups.html", values)

    def _history(self, snapshot: PoolSnapshot, view: GroupsView) -> str:
        events = [
            (at, each, *_STEPS[each.step])
            for at, each in snapshot.history
            if _is_wanted(each.key, view)
        ]
        return render("_history.html", {"events": events, "view": view, "most": HISTORY_MAX})


def _is_wanted(key: str, view: GroupsView) -> bool:
    return view.filter.casefold() in key.casefold()


def _has_trouble(group: Mapping[str, Any]) -> bool:
    return bool(group["flaws"] or group["failure"])


def _rank(group: Mapping[str, Any]) -> tuple[bool, int, str]:
    """Return what groups are sorted by."""
    waiting = (group["messages"] or 0) + group["orphans"]
    return not _has_trouble(group), -waiting, group["key"]
