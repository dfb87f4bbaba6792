"""Stores for copies of logs: a folder, or an object store, by its URL.

    store = open_store("s3://bucket/journals")
    store.put("broker-0123456789abcdef/00000000000000000000.seg", data)

Objects are replaced completely or not at all. Object stores need the extra `ship`. Credentials and
endpoints are read from the environment, as by the store's own programs (`AWS_ACCESS_KEY_ID`,
`AWS_ENDPOINT_URL`, ...), never from the URL.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from requite.errors import ConfigurationError, LogFailed, LogGone
from requite.storage.disk import as_storage_error, sync_folder
from requite.storage.place import is_store, place_of
from requite.storage.private import FILE_MODE, FOLDER_MODE, create_file, make_folder

_DRAFT_SUFFIX: Final = ".new"
_SHARED: Final = (0o777, 0o666)  # of folders and files, without the umask
_VARIABLES: Final = ("AWS_", "AZURE_", "GOOGLE_")
_RETRIES_MAX: Final = 5
_RETRY_FOR: Final = timedelta(seconds=60)
_MESSAGE: Final = re.compile(r"<Message>(.*?)</Message>", re.DOTALL)
_NO_BUCKET: Final = "NoSuchBucket"
_NO_CREDENTIALS: Final = "169.254.169.254"  # where cloud machines get credentials
_WORDS_MAX: Final = 200


class BucketMissing(LogFailed):
    """The bucket does not exist."""


class Store(Protocol):
    """Objects by name, with `/` between the parts of names. All methods raise `StorageError`."""

    @property
    def url(self) -> str:
        """The URL of the store."""

    def put(self, name: str, data: bytes) -> None:
        """Create or replace an object, completely."""

    def get(self, name: str, size: int, offset: int = 0) -> bytes:
        """Return at most `size` bytes of an object. Raises `LogGone` if it does not exist."""

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the sizes in bytes of the objects whose names begin with `prefix/`, by name."""

    def parts(self) -> list[str]:
        """Return the names at the top level of the store; those of folders end with `/`."""

    def changed_ns(self, name: str) -> int:
        """Return the modification time of an object in nanoseconds. Raises `LogGone`."""


def open_store(url: str | PathLike[str], *, is_shared: bool = False) -> Store:
    """Return the store at a path or a URL. Raises `ConfigurationError` for an invalid one.

    Only this user can read what is put into a folder; with `is_shared` the umask decides.
    """
    place = place_of(url, "journals are copied to")
    return ObjectStore(place) if is_store(place) else FolderStore(Path(place), is_shared=is_shared)


class FolderStore:
    """A local or mounted folder."""

    def __init__(self, path: Path, *, is_shared: bool = False) -> None:
        self._path = path
        self._folder_mode, self._file_mode = _SHARED if is_shared else (FOLDER_MODE, FILE_MODE)

    @property
    def url(self) -> str:
        return str(self._path)

    def put(self, name: str, data: bytes) -> None:
        path = self._path / name
        draft = path.with_name(path.name + _DRAFT_SUFFIX)
        with as_storage_error("write", path):
            make_folder(path.parent, self._folder_mode)
            with open(create_file(draft, mode=self._file_mode), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
            sync_folder(path.parent)

    def get(self, name: str, size: int, offset: int = 0) -> bytes:
        path = self._path / name
        with as_storage_error("read", path), path.open("rb") as file:
            file.seek(offset)
            return file.read(size)

    def sizes(self, prefix: str) -> dict[str, int]:
        folder = self._path / prefix
        found: dict[str, int] = {}
        with as_storage_error("list", folder), suppress(FileNotFoundError, NotADirectoryError):
            for entry in os.scandir(folder):
                if entry.is_file() and not entry.name.endswith(_DRAFT_SUFFIX):
                    found[f"{prefix}/{entry.name}"] = entry.stat().st_size
        return found

    def parts(self) -> list[str]:
        with as_storage_error("list", self._path), suppress(FileNotFoundError):
            return [
                f"{entry.name}/" if entry.is_dir() else entry.name
                for entry in os.scandir(self._path)
                if not entry.name.endswith(_DRAFT_SUFFIX)
            ]
        return []

    def changed_ns(self, name: str) -> int:
        with as_storage_error("look at", self._path / name):
            return (self._path / name).stat().st_ctime_ns


class ObjectStore:
    """A bucket, or a part of one."""

    def __init__(self, url: str) -> None:
        try:
            import obstore
        except ImportError:
            raise ConfigurationError(
                f"{url} requires packages that are not installed: pip install 'requite[ship]'"
            ) from None
        self._url = url
        self._obstore = obstore
        parts = urlsplit(url)
        self._prefix = f"{parts.path.strip('/')}/".lstrip("/")
        environment = frozenset(
            item for item in os.environ.items() if item[0].upper().startswith(_VARIABLES)
        )
        with self._doing("open", ""):
            self._store = _client(f"{parts.scheme}://{parts.netloc}", environment)

    @property
    def url(self) -> str:
        return self._url

    def put(self, name: str, data: bytes) -> None:
        with self._doing("write", name):
            self._obstore.put(self._store, self._prefix + name, data)

    def get(self, name: str, size: int, offset: int = 0) -> bytes:
        with self._doing("read", name):
            path = self._prefix + name
            try:
                span = (offset, offset + size)
                return bytes(self._obstore.get(self._store, path, options={"range": span}).bytes())
            except self._obstore.exceptions.GenericError:
                # Empty ranges, and ranges after the end, are errors.
                if size and self._obstore.head(self._store, path)["size"] > offset:
                    raise
                return b""

    def sizes(self, prefix: str) -> dict[str, int]:
        with self._doing("list", prefix):
            listed = self._obstore.list(self._store, prefix=f"{self._prefix}{prefix}/")
            start = len(self._prefix)
            return {found["path"][start:]: found["size"] for part in listed for found in part}

    def parts(self) -> list[str]:
        with self._doing("list", ""):
            listed = self._obstore.list_with_delimiter(self._store, prefix=self._prefix or None)
            start = len(self._prefix)
            folders = [f"{path[start:]}/" for path in listed["common_prefixes"]]
            return folders + [found["path"][start:] for found in listed["objects"]]

    def changed_ns(self, name: str) -> int:
        with self._doing("look at", name):
            written = self._obstore.head(self._store, self._prefix + name)["last_modified"]
            return round(written.timestamp() * 1e9)

    @contextmanager
    def _doing(self, what: str, name: str) -> Iterator[None]:
        """Convert errors of the store to `StorageError`s of one line."""
        try:
            yield
        except (self._obstore.exceptions.BaseError, OSError, ValueError) as error:
            absent = (self._obstore.exceptions.NotFoundError, FileNotFoundError)
            if isinstance(error, absent) and _NO_BUCKET not in str(error):
                place = f"{self._url}/{name}"
                raise LogGone(f"cannot {what} {place}: it does not exist (any more).") from None
            kind = BucketMissing if _NO_BUCKET in str(error) else LogFailed
            raise kind(
                f"cannot {what} {self._url}/{name}: {_words(error)}. Check the URL, the "
                "credentials in the environment, and the network."
            ) from None


@lru_cache(maxsize=16)
def _client(root: str, _environment: frozenset[tuple[str, str]]) -> Any:
    """Return the client of a bucket, cached for equal settings.

    Requests fail within a minute, so that no command waits longer.
    """
    from obstore.store import from_url

    retries: Any = {"max_retries": _RETRIES_MAX, "retry_timeout": _RETRY_FOR}
    return from_url(root, retry_config=retries)


def _words(error: Exception) -> str:
    """Shorten an error message of a store's client."""
    text = str(error).strip()
    if message := _MESSAGE.search(text):
        return message[1].strip().rstrip(".")
    if _NO_CREDENTIALS in text:
        return "no credentials are set in the environment"
    return text.split("\n", 1)[0][:_WORDS_MAX].rstrip(". ")
