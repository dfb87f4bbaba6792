"""Play a script of any protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from requite.sim.freelance.script import FreelanceScript
from requite.sim.kernel.script import Script, clean
from requite.sim.majordomo.script import MajordomoScript
from requite.sim.pirate.script import PirateScript
from requite.sim.scalability.script import ScalabilityScript

# By the first word of the script.
_SCRIPTS: Final[dict[str, Callable[[Sequence[str]], Script]]] = {
    "sp": ScalabilityScript,
    "flp": FreelanceScript,
    "pirate": PirateScript,
}


def play(script: str) -> list[str]:
    """Play a script; return the lines of its transcript, and of its violations.

    Raises `ConfigurationError` for a line that cannot be read.
    """
    lines = clean(script)
    first = lines[0].split()[0] if lines else ""
    return _SCRIPTS.get(first, MajordomoScript)(lines).play()
