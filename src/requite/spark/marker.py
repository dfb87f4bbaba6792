"""Which places are lakes of ours: `LAKE/_requite/lake.json` says so, and names the journal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from requite.errors import ConfigurationError, LakeDamaged, LakeError, LogGone, StorageError
from requite.spark.delta.catalog import RUNS
from requite.storage.place import is_store
from requite.storage.stores import BucketMissing, Store, open_store

FORMAT: Final = 2
"""The layout of lakes: 1 was folders of Parquet; a higher one was made by a newer requite."""

OURS: Final = "_requite"
"""The folder in a lake that is no table."""

MARKER: Final = f"{OURS}/lake.json"
"""The file that marks a folder as a lake."""

_SIZE_MAX: Final = 1 << 16


def claim(root: str, journal: str) -> int:
    """Make a place a lake for a journal, or see that it is one; return its format.

    Raises `ConfigurationError` where it is something else, and touches nothing then, and where
    there is no bucket of that name; `LakeDamaged`
    where it is a lake that has lost its marker; `LakeError` where it cannot be read or written.
    """
    with _named(root):
        store = open_store(root)
        marker = None if _is_file(root) else load(root, store)
        if marker is not None:
            return _check(root, marker, journal)
        if _is_file(root) or not _is_blank(store):
            raise _refusal(root, store)
        save(root, {"format": FORMAT, "journal": journal})
    return FORMAT


def require_reachable(root: str) -> None:
    """Raise what `is_lake` raises where no lake can be, before Spark starts."""
    is_lake(root)


def require_current(root: str) -> None:
    """Raise `ConfigurationError` for a lake of an older version, which a run migrates."""
    with _named(root):
        marker = load(root)
    if marker is not None and marker.get("format", 0) < FORMAT:
        raise ConfigurationError(
            f"the lake at {root} was made by an older version of requite: `requite spark run` with "
            "its journal migrates it"
        )


def is_lake(root: str) -> bool:
    """Whether a run has made a lake at a place.

    Raises `LakeError` where that cannot be read, `ConfigurationError` where there is no bucket.
    """
    with _named(root):
        store = open_store(root)
        return not _is_file(root) and (load(root, store) is not None or f"{RUNS}/" in store.parts())


def load(root: str, store: Store | None = None, path: str = MARKER) -> dict[str, Any] | None:
    """Read one of our own files; None where there is none.

    Raises `LakeDamaged` for one that cannot be understood.
    """
    try:
        record = json.loads((store or open_store(root)).get(path, _SIZE_MAX))
    except LogGone:
        return None
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise LakeDamaged(f"{root}/{path} is damaged; put it back, or name another lake")
    return record


def save(root: str, record: dict[str, Any]) -> None:
    """Write the marker, whole or not at all."""
    open_store(root).put(MARKER, json.dumps(record, indent=1, sort_keys=True).encode())


def _refusal(root: str, store: Store) -> Exception:
    if not _is_file(root) and store.sizes(f"{RUNS}/_delta_log"):
        return LakeDamaged(f"{root}/{MARKER} is gone: put it back, or name another lake")
    return ConfigurationError(
        f"{root} is not empty and not a lake of requite: nothing was touched; "
        "name a new folder, or an empty one"
    )


def _is_file(root: str) -> bool:
    return not is_store(root) and Path(root).is_file()


def _is_blank(store: Store) -> bool:
    """Whether a place holds nothing, or only what a run that died at once has left of ours."""
    parts = store.parts()
    return not parts or (parts == [f"{OURS}/"] and not store.sizes(OURS))


def _check(root: str, marker: dict[str, Any], journal: str) -> int:
    made_as = marker.get("format", 0)
    if made_as > FORMAT:
        raise ConfigurationError(f"the lake at {root} was made by a newer version of requite")
    fed_by = marker.get("journal")
    if fed_by != journal:
        raise ConfigurationError(
            f"the lake at {root} is fed by the journal {fed_by}: name another lake, a new folder, "
            f"for the journal {journal}; or, if it is the same one, which was moved, write its new "
            f"path into {root}/{MARKER}"
        )
    if made_as < FORMAT and is_store(root):
        raise ConfigurationError(
            f"the lake at {root} was made by an older version of requite, which kept lakes in "
            "folders: copy it to one, run with that, and copy it back; or name a new lake"
        )
    return int(made_as)


@contextmanager
def _named(root: str) -> Iterator[None]:
    try:
        yield
    except BucketMissing as error:
        raise ConfigurationError(f"no lake can be kept at {root}: {error}") from error
    except StorageError as error:
        raise LakeError(f"no lake can be kept at {root}: {error}") from error
