"""The transcripts: each file is a script, a line of dashes, and what is said when it is played."""

from __future__ import annotations

from pathlib import Path

from requite.sim.playing import play

FOLDER = Path(__file__).parent
BORDER = "----\n"


def names() -> list[str]:
    """Return the names of all transcripts."""
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


def read(name: str) -> tuple[str, str]:
    """Return a script, and the transcript that is on file."""
    script, _, transcript = (FOLDER / f"{name}.txt").read_text("utf-8").partition(BORDER)
    return script, transcript


def render(script: str) -> str:
    """Play a script; return its transcript as text."""
    return "".join(f"{line}\n" for line in play(script))


def rewrite(name: str) -> bool:
    """Play a script and put its transcript on file; tell whether it has changed."""
    script, before = read(name)
    after = render(script)
    (FOLDER / f"{name}.txt").write_text(script + BORDER + after, "utf-8")
    return before != after
