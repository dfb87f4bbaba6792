"""The parts of a journal that filters select: whole logs, blocks and steps are skipped, not rows.

Spark filters the rows afterwards, so a selection may contain too much, but never too little.
Undecodable data has no request id, and is filtered by its log only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql.datasource import EqualNullSafe, EqualTo, Filter, In

from requite.journal.folder import LogFolder
from requite.journal.meaning import ROLE_NAMES

Wanted = frozenset[Any] | None
"""The selected values of a column; None: all."""


@dataclass(frozen=True)
class Selection:
    """The selected values of some columns."""

    log: Wanted = None
    role: Wanted = None
    kind: Wanted = None
    request_id: Wanted = None

    def wants_log(self, log: LogFolder) -> bool:
        return _in(log.log, self.log) and _in(ROLE_NAMES[log.role], self.role)

    def wants_kind(self, kind: str) -> bool:
        return _in(kind, self.kind)

    def may_have(self, payload: memoryview) -> bool:
        """Return whether a block may contain a selected request, by the bytes of its call id.

        True for an invalid call id: Spark then filters out all rows.
        """
        if self.request_id is None:
            return True
        data = bytes(payload)
        return any(_call_id(request_id) in data for request_id in self.request_id)


ALL = Selection()


def select(filters: Iterable[Filter]) -> Selection:
    """Return the selection by the conjunction of filters."""
    return reduce(_narrow, filters, ALL)


def _narrow(selection: Selection, condition: Filter) -> Selection:
    if isinstance(condition, (EqualTo, EqualNullSafe)):
        values: frozenset[Any] = frozenset({condition.value})
    elif isinstance(condition, In):
        values = frozenset(condition.value)
    else:
        return selection
    column = ".".join(condition.attribute)
    if column not in Selection.__dataclass_fields__ or None in values:
        return selection
    before = getattr(selection, column)
    wanted = {name: getattr(selection, name) for name in Selection.__dataclass_fields__}
    return Selection(**(wanted | {column: values if before is None else values & before}))


def _in(value: str, wanted: Wanted) -> bool:
    return wanted is None or value in wanted


def _call_id(request_id: str) -> bytes:
    try:
        return bytes.fromhex(request_id)
    except ValueError:
        return b""
