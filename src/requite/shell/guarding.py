"""What a host uses of a guard: who may connect, and what is recorded about it."""

from __future__ import annotations

from requite.access.guard import Guard
from requite.shell.admission import AdmissionUses


def guarded_by(guard: Guard | None) -> AdmissionUses:
    """Return what a host asks and tells a guard; without one, everybody may connect."""
    if guard is None:
        return {}
    return {
        "identify": guard.identify,
        "identified": guard.identified,
        "verify": guard.verify,
        "login_refused": guard.login_refused,
        "ask": guard.ask,
    }
