"""Transcripts of scripted scenarios. A file has a script, a line of dashes, and the messages that
the simulator recorded when it ran the script."""

from __future__ import annotations

from pathlib import Path

from requite.sim.playing import play

FOLDER = Path(__file__).parent
BORDER = "----\n"


def names() -> list[str]:
    """Return the names of all transcripts."""
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


def read(name: str) -> tuple[str, str]:
    """Return the script and the transcript in a file."""
    script, _, transcript = (FOLDER / f"{name}.txt").read_text("utf-8").partition(BORDER)
    return script, transcript


def render(script: str) -> str:
    """Run a script; return its transcript as text."""
    return "".join(f"{line}\n" for line in play(script))


def rewrite(name: str) -> bool:
    """Run a script and write its transcript to its file; return whether it has changed."""
    script, before = read(name)
    after = render(script)
    (FOLDER / f"{name}.txt").write_text(script + BORDER + after, "utf-8")
    return before != after
