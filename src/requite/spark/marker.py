"""Which folders are lakes of ours: `LAKE/_requite/lake.json` says so, and names the journal."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

from requite.errors import ConfigurationError, LakeDamaged, LakeError
from requite.spark.delta.catalog import RUNS
from requite.spark.delta.files import words_of

FORMAT: Final = 2
"""The layout of lakes: 1 was folders of Parquet; a higher one was made by a newer requite."""

_OUR_FOLDER: Final = "_requite"
_MARKER: Final = "lake.json"


def marker_of(root: Path) -> Path:
    """Return the file that marks a folder as a lake."""
    return root / _OUR_FOLDER / _MARKER


def claim(root: Path, journal: str) -> int:
    """Make a folder a lake for a journal, or see that it is one; return its format.

    Raises `ConfigurationError` where it is something else, and touches nothing then; `LakeDamaged`
    where it is a lake that has lost its marker.
    """
    marker = marker_of(root)
    try:
        if marker.is_file():
            return _check(root, load(marker), journal)
        if root.exists() and not _is_blank(root):
            raise _refusal(root)
        marker.parent.mkdir(parents=True, exist_ok=True)
        save(marker, {"format": FORMAT, "journal": journal})
    except OSError as error:
        raise LakeError(f"no lake can be made at {root}: {words_of(error)}") from error
    return FORMAT


def require_current(root: Path) -> None:
    """Raise `ConfigurationError` for a lake of an older version, which a run migrates."""
    marker = marker_of(root)
    if marker.is_file() and load(marker).get("format", 0) < FORMAT:
        raise ConfigurationError(
            f"the lake at {root} was made by an older version of requite: `requite spark run` with "
            "its journal migrates it"
        )


def _refusal(root: Path) -> Exception:
    if (root / RUNS / "_delta_log").is_dir():
        return LakeDamaged(f"{marker_of(root)} is gone: put it back, or name another lake")
    return ConfigurationError(
        f"{root} is not empty and not a lake of requite: nothing was touched; "
        "name a new folder, or an empty one"
    )


def _is_blank(root: Path) -> bool:
    """Whether a folder holds nothing, or only what a run that died at once has left of ours."""
    if not root.is_dir():
        return False
    ours = root / _OUR_FOLDER
    if any(entry != ours for entry in root.iterdir()):
        return False
    if not ours.exists():
        return True
    draft = _draft(ours / _MARKER)
    return ours.is_dir() and all(entry == draft for entry in ours.iterdir())


def _check(root: Path, marker: dict[str, Any], journal: str) -> int:
    made_as = marker.get("format", 0)
    if made_as > FORMAT:
        raise ConfigurationError(f"the lake at {root} was made by a newer version of requite")
    fed_by = marker.get("journal")
    if fed_by != journal:
        raise ConfigurationError(
            f"the lake at {root} is fed by the journal {fed_by}: name another lake, a new folder, "
            f"for the journal {journal}; or, if it is the same one, which was moved, write its new "
            f"path into {marker_of(root)}"
        )
    return int(made_as)


def load(path: Path) -> dict[str, Any]:
    """Read one of our own files. Raises `LakeDamaged` where it cannot be read."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise LakeDamaged(f"{path} is damaged; put it back, or name another lake")
    return record


def _draft(path: Path) -> Path:
    return path.with_suffix(".new")


def save(path: Path, record: dict[str, Any]) -> None:
    """Write one of our own files, whole or not at all."""
    draft = _draft(path)
    with draft.open("w", encoding="utf-8") as file:
        json.dump(record, file, indent=1, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
