"""`Uses`: what the user of a shell passes through it to its host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from requite.engine import Note
from requite.errors import CallError
from requite.framing.router import IdentityTable
from requite.shell.admission import AdmissionUses
from requite.shell.link import Link


class Uses(AdmissionUses, total=False):
    """Callbacks and options that the user of a shell passes to its host; all are optional, as are
    those of `AdmissionUses`.

    - `deliver(token, what)`, `fail(token, error)`: for the user's `token`.
    - `deliver_all(pairs)`: as `deliver` of each pair.
    - `abandon(token, reason)`: cancel a handler. `note(Note)`: for the journal.
    - `flow(is_free)`: some link pushes back (False), or none does any more (True).
    - `identities`: the identity table of a listening ROUTER.
    - `logger`: the name of the logger for warnings.
    - `reports_dials`: the user reports failed handshakes of dialled links, so the host does not log
      them.
    """

    deliver: Callable[[Any, Any], None]
    deliver_all: Callable[[Sequence[tuple[Any, Any]]], None]
    fail: Callable[[Any, CallError], None]
    abandon: Callable[[Any, str], None]
    note: Callable[[Note], None]
    flow: Callable[[bool], None]
    identities: IdentityTable[Link]
    logger: str
    reports_dials: bool
