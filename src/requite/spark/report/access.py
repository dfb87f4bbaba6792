"""The report's section on access: who was denied what, refused passwords, changes, users."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from markupsafe import Markup

from requite.spark.report import words
from requite.spark.report.behaviour import charts_of, group, section
from requite.spark.report.facts import Access, Facts
from requite.spark.report.html_table import Column, sentence, table, text
from requite.spark.report.markup import legible

_REASON_SIZE: Final = 160
_NOBODY: Final = "anonymous"
_UNKNOWN: Final = "unknown"


def access(facts: Facts) -> Markup | None:
    """Return the section on access; None without decisions."""
    found = facts.access
    if found is None:
        return None
    parts = (_denials(found), charts_of(_guesses(found), _changes(found)), _users(found))
    return section("Access", _lead(found), *parts, id="access")


def _lead(found: Access) -> str:
    logins = words.counted(found.guessed, "login")
    guessed = f", among them {logins} with a wrong password or user name" if found.guessed else ""
    changed = words.counted(found.changes_known, "change")
    return (
        f"Decisions of the brokers: {words.count(found.denied)} denied{guessed}; {changed} of "
        "rights. The table silver_access has all of them."
    )


def _denials(found: Access) -> Markup | None:
    columns: tuple[str | Column, ...] = (
        *(text("user"), text("right"), text("name"), "times"),
        *(text("first"), text("last"), sentence("last reason")),
    )
    rows = [
        (
            legible(row.principal) or _NOBODY,
            legible(row.verb),
            legible(row.object) or words.NOTHING,
            words.count(row.n),
            _clock(row.first_seen),
            _clock(row.last_seen),
            legible(row.reason, _REASON_SIZE) or words.NOTHING,
        )
        for row in found.denials
    ]
    title = _title("Denied", len(rows), found.denials_known, "most frequent")
    return _card(title, columns, rows, "Denied")


def _guesses(found: Access) -> Markup | None:
    columns = (text("address"), text("hour"), "refused", "user names")
    rows = [
        (
            legible(row.address) or _UNKNOWN,
            f"{row.hour:%Y-%m-%d %H:00}",
            words.count(row.n),
            words.count(row.names),
        )
        for row in found.guesses
    ]
    title = _title("Refused passwords by address and hour", len(rows), found.guesses_known, "most")
    return _card(title, columns, rows, "Refused passwords")


def _changes(found: Access) -> Markup | None:
    rows = [
        (_clock(row.at), legible(row.principal), legible(row.what) or words.NOTHING)
        for row in found.changes
    ]
    title = _title("Changes of rights", len(rows), found.changes_known, "last")
    return _card(title, (text("time"), text("user"), text("change")), rows, "Changes of rights")


def _users(found: Access) -> Markup | None:
    if not any(row.principal for row in found.users):
        return None
    rows = [
        (
            legible(row.principal) or _UNKNOWN,
            *map(words.count, (row.accepted, row.replied, row.failed)),
        )
        for row in found.users
    ]
    title = _title("Requests by user", len(rows), found.users_known, "busiest")
    return _card(title, (text("user"), "accepted", "replied", "failed"), rows, "Requests by user")


def _card(
    title: str, columns: Sequence[str | Column], rows: Sequence[Sequence[str]], label: str
) -> Markup | None:
    return group("card", title, table(columns, rows, label=label)) if rows else None


def _title(title: str, shown: int, known: int, which: str) -> str:
    return title if shown == known else f"{title}: the {shown} {which} of {known:,}"


def _clock(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}"
