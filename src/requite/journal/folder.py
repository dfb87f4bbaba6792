"""The folder of a journal: one log per writer, named `ROLE-NAME`.

Each log is enrolled at its start by an empty file `.logs/ROLE-NAME`, so that the loss of a whole
log is detected. Copies of several journals may share one folder. A journal shipped to an object
store is read there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from requite.chronicle import ORIGIN_SIZE, WriterRole
from requite.errors import ConfigurationError, LogFailed, StorageError
from requite.journal.meaning import ROLE_NAMES
from requite.storage.place import is_store, local_folder, store_url
from requite.storage.private import FILE_MODE, make_folder
from requite.storage.stores import open_store

_ROLES: Final = {name: role for role, name in ROLE_NAMES.items()}
_LOG_NAME: Final = re.compile(rf"({'|'.join(_ROLES)})-([0-9a-f]{{{2 * ORIGIN_SIZE}}})")
# Names that a new file system or a file browser leaves in a folder.
_HARMLESS: Final = re.compile(r"\..*|lost\+found")
_ROLL: Final = ".logs"
_NAMED_MAX: Final = 3
_READ_FROM: Final = "a journal is read from"
_AT_ONCE: Final = 16  # concurrent requests to a store

T = TypeVar("T")


class LogFolder(NamedTuple):
    """A log's place (a path or a URL) and its writer; `name` is hexadecimal."""

    place: str
    role: WriterRole
    name: str

    @property
    def log(self) -> str:
        """The log's name: `broker-0123456789abcdef`."""
        return self.place.rpartition("/")[2]


def log_name(role: WriterRole, name: bytes) -> str:
    """Return the name of a writer's log."""
    return f"{ROLE_NAMES[role]}-{name.hex()}"


def identify(place: Path | str) -> LogFolder | None:
    """Parse the name of a log's folder; return None for any other folder."""
    match = _LOG_NAME.fullmatch(str(place).rpartition("/")[2])
    return LogFolder(str(place), _ROLES[match[1]], match[2]) if match else None


def find_logs(directory: Path | str) -> list[LogFolder]:
    """Return the logs in a journal's folder, by name, or the one log whose folder it is.

    Raises `ConfigurationError` if the folder does not exist, is not a folder or has only other
    files, or if the store cannot be read.
    """
    url = store_url(directory, _READ_FROM)
    if url is not None:
        return _logs_in_store(url)
    path = _folder(directory)
    one = identify(path.resolve())
    if one is not None and path.is_dir():
        return [one]
    return sorted(_logs(path, _entries(path)))


def of_each(logs: Sequence[LogFolder], act: Callable[[LogFolder], T]) -> list[T]:
    """Return the results of `act` for each log, in order.

    Logs in a store are read concurrently, since each request takes long.
    """
    if not logs or not is_store(logs[0].place):
        return [act(log) for log in logs]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(act, logs))


def _folder(directory: Path | str) -> Path:
    is_url = str(directory).lower().startswith("file:")
    return local_folder(directory, _READ_FROM) if is_url else Path(directory)


def _logs_in_store(url: str) -> list[LogFolder]:
    parts = _parts(url)
    if not parts:
        raise ConfigurationError(f"there is no journal at {url}: the place is empty")
    one = identify(url)
    if one is not None:
        return [one]
    logs = [identify(f"{url}/{part[:-1]}") for part in parts if part.endswith("/")]
    found = sorted(log for log in logs if log is not None)
    if not found:
        _require_harmless(url, (part.rstrip("/") for part in parts))
    return found


def _parts(url: str) -> list[str]:
    try:
        return open_store(url).parts()
    except StorageError as error:
        raise ConfigurationError(f"the journal at {url} cannot be read: {error}") from None


def enrol(log: Path) -> None:
    """Enrol a new log. Raises `StorageError` if the entry cannot be written."""
    roll = log.parent / _ROLL
    try:
        make_folder(roll)
        (roll / log.name).touch(FILE_MODE)
    except OSError as error:
        cause = error.strerror or str(error)
        raise LogFailed(
            f"cannot write to {roll}: {cause}. Check the disk and the permissions."
        ) from error


def roll_entry(log: str) -> str:
    """Return the path, within its journal, of the file that enrols a log."""
    return f"{_ROLL}/{log}"


def missing_logs(directory: Path | str) -> list[LogFolder]:
    """Return the enrolled logs whose folders are missing, by name."""
    url = store_url(directory, _READ_FROM)
    if url is not None:
        there = {part[:-1] for part in _parts(url)}
        paths = open_store(url).sizes(_ROLL)
        enrolled = [identify(f"{url}/{path.rpartition('/')[2]}") for path in sorted(paths)]
        return [log for log in enrolled if log is not None and log.log not in there]
    path = _folder(directory)
    try:
        names = sorted(entry.name for entry in (path / _ROLL).iterdir())
    except (FileNotFoundError, NotADirectoryError):  # written by an earlier version, or one log
        return []
    enrolled = [identify(path / name) for name in names]
    return [log for log in enrolled if log is not None and not Path(log.place).is_dir()]


def prepare(directory: Path | str) -> Path:
    """Check that a folder is a journal or may become one, without writing. Raises
    `ConfigurationError` if not."""
    path = Path(directory)
    nearest = next(place for place in (path, *path.absolute().parents) if place.exists())
    if nearest == path:
        _logs(path, _entries(path))
    elif not nearest.is_dir():
        raise ConfigurationError(f"cannot create {path}: {nearest} is a file")
    return path


def _entries(path: Path) -> list[Path]:
    try:
        return list(path.iterdir())
    except FileNotFoundError:
        raise ConfigurationError(f"there is no journal at {path}: no such folder") from None
    except NotADirectoryError:
        raise ConfigurationError(f"{path} is a file; a journal is a folder") from None
    except OSError as error:
        raise ConfigurationError(f"cannot read the journal at {path}: {error.strerror}") from None


def _logs(path: Path, entries: Iterable[Path]) -> list[LogFolder]:
    """Return the logs among the entries. Raises `ConfigurationError` for only other files."""
    found = [(entry, identify(entry)) for entry in entries]
    logs = [log for entry, log in found if log is not None and entry.is_dir()]
    if not logs:
        _require_harmless(path, (entry.name for entry, _ in found))
    return logs


def _require_harmless(place: Path | str, names: Iterable[str]) -> None:
    others = sorted(name for name in names if not _HARMLESS.fullmatch(name))
    if others:
        named = ", ".join(others[:_NAMED_MAX]) + (", …" if len(others) > _NAMED_MAX else "")
        raise ConfigurationError(f"{place} is not a journal: it contains {named}, and no log")
