"""The marker file of a lake, `LAKE/_requite/lake.json`, which also names the journal."""

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
"""The format of lakes: 1 was folders of Parquet; a higher one is from a newer requite."""

OURS: Final = "_requite"
"""The folder in a lake that is not a table."""

MARKER: Final = f"{OURS}/lake.json"
"""The file that marks a folder as a lake."""

_SIZE_MAX: Final = 1 << 16


def claim(root: str, journal: str) -> int:
    """Mark a folder or store as a lake for a journal, or verify its marker; return its format.

    Raises `ConfigurationError` if it contains other files (nothing is changed then) or if the
    bucket does not exist; `LakeDamaged` if it is a lake without its marker; `LakeError` if it
    cannot be read or written.
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
    """Raise the errors of `is_lake`; for a check before Spark starts."""
    is_lake(root)


def require_current(root: str) -> None:
    """Raise `ConfigurationError` for a lake of an older format, which a run migrates."""
    with _named(root):
        marker = load(root)
    if marker is not None and marker.get("format", 0) < FORMAT:
        raise ConfigurationError(
            f"the lake at {root} was created by an older version of requite: run `requite"
            " spark run` with its journal to migrate it"
        )


def is_lake(root: str) -> bool:
    """Return whether there is a lake in a folder or store.

    Raises `LakeError` if it cannot be read, `ConfigurationError` if the bucket does not exist.
    """
    with _named(root):
        store = open_store(root)
        return not _is_file(root) and (load(root, store) is not None or f"{RUNS}/" in store.parts())


def load(root: str, store: Store | None = None, path: str = MARKER) -> dict[str, Any] | None:
    """Read the marker, or another JSON file of the lake; return None if it does not exist.

    Raises `LakeDamaged` if it cannot be parsed.
    """
    try:
        record = json.loads((store or open_store(root)).get(path, _SIZE_MAX))
    except LogGone:
        return None
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise LakeDamaged(f"{root}/{path} is damaged; restore it, or pass another folder")
    return record


def save(root: str, record: dict[str, Any]) -> None:
    """Write the marker atomically. All who can read the tables can read it, too."""
    store = open_store(root, is_shared=True)
    store.put(MARKER, json.dumps(record, indent=1, sort_keys=True).encode())


def _refusal(root: str, store: Store) -> Exception:
    if not _is_file(root) and store.sizes(f"{RUNS}/_delta_log"):
        return LakeDamaged(f"{root}/{MARKER} is missing: restore it, or pass another folder")
    return ConfigurationError(
        f"{root} is not empty and not a lake of requite: nothing was changed; pass a new or"
        " empty folder"
    )


def _is_file(root: str) -> bool:
    return not is_store(root) and Path(root).is_file()


def _is_blank(store: Store) -> bool:
    """Return whether a place is empty, except for the folder of a run that crashed at once."""
    parts = store.parts()
    return not parts or (parts == [f"{OURS}/"] and not store.sizes(OURS))


def _check(root: str, marker: dict[str, Any], journal: str) -> int:
    made_as = marker.get("format", 0)
    if made_as > FORMAT:
        raise ConfigurationError(
            f"the lake at {root} was created by a newer version of requite: upgrade requite,"
            " or pass a new folder"
        )
    fed_by = marker.get("journal")
    if fed_by != journal:
        raise ConfigurationError(
            f"the lake at {root} belongs to the journal {fed_by}: pass a new folder for the"
            f" lake of the journal {journal}; or, if the journal was only moved, write its new"
            f" path into {root}/{MARKER}"
        )
    if made_as < FORMAT and is_store(root):
        raise ConfigurationError(
            f"the lake at {root} was created by an older version of requite, which supported"
            " lakes in folders only: copy it to a folder, run with that, and copy it back; or"
            " pass a new folder"
        )
    return int(made_as)


@contextmanager
def _named(root: str) -> Iterator[None]:
    try:
        yield
    except BucketMissing as error:
        raise ConfigurationError(f"cannot store a lake at {root}: {error}") from error
    except StorageError as error:
        raise LakeError(f"cannot store a lake at {root}: {error}") from error
