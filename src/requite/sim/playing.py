"""Play a script, whichever protocol it is about."""

from __future__ import annotations

from requite.sim.majordomo_script import MajordomoScript
from requite.sim.scalability.script import ScalabilityScript
from requite.sim.script import clean


def play(script: str) -> list[str]:
    """Play a script; return the lines of its transcript, and of what was violated, if anything.

    Raises `ConfigurationError` for a line that cannot be read.
    """
    lines = clean(script)
    is_sp = bool(lines) and lines[0].split()[0] == "sp"
    return (ScalabilityScript if is_sp else MajordomoScript)(lines).play()
