"""Play a script of any protocol."""

from __future__ import annotations

from requite.sim.kernel.script import Script, clean
from requite.sim.scenarios import PLUGINS


def play(script: str) -> list[str]:
    """Play a script; return the lines of its transcript, and of its violations.

    Raises `ConfigurationError` for a line that cannot be read.
    """
    lines = clean(script)
    first = lines[0].split()[0] if lines else ""
    form = (PLUGINS[first] if first in PLUGINS else PLUGINS["mdp"]).script
    assert form is not None
    return Script(lines, form).play()
