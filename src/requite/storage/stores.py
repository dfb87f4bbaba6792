"""Where copies of logs are kept: a folder, or a store of objects, by its URL.

    store = open_store("s3://bucket/journals")
    store.put("broker-0123456789abcdef/00000000000000000000.seg", data)

Objects are replaced as a whole, or not at all. Stores of objects need the extra `ship`; credentials
and endpoints are taken from the environment, as the store's own programs do (`AWS_ACCESS_KEY_ID`,
`AWS_ENDPOINT_URL`, ...), and never from the URL.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from requite.errors import ConfigurationError, LogFailed, LogGone
from requite.storage.disk import as_storage_error, sync_folder
from requite.storage.place import local_folder

_SCHEMES: Final = ("s3", "s3a", "gs", "az", "abfs", "abfss")
_DRAFT_SUFFIX: Final = ".new"


class Store(Protocol):
    """Objects by name; names have `/` between their parts. All methods raise `StorageError`."""

    @property
    def url(self) -> str:
        """Where it is."""

    def put(self, name: str, data: bytes) -> None:
        """Make or replace an object, as a whole."""

    def get(self, name: str, size: int, offset: int = 0) -> bytes:
        """Return at most `size` bytes of an object; `LogGone` if it is not there."""

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the sizes in bytes of the objects whose names begin with `prefix/`, by name."""


def open_store(url: str) -> Store:
    """Return the store at a path or a URL. Raises `ConfigurationError` for what is none."""
    scheme = urlsplit(url).scheme if "://" in url or url.startswith("file:") else ""
    if scheme == "":
        return FolderStore(Path(url).expanduser().absolute())
    if scheme == "file":
        return FolderStore(local_folder(url, "journals are kept in"))
    if scheme not in _SCHEMES:
        known = ", ".join(f"{each}://" for each in _SCHEMES)
        raise ConfigurationError(f"{url}: journals are kept in folders and under {known}")
    if urlsplit(url).username or urlsplit(url).password:
        raise ConfigurationError(
            "credentials of a store do not belong into its URL: set them in the environment"
        )
    return ObjectStore(url.replace("s3a://", "s3://", 1))


class FolderStore:
    """A folder of this machine, or a mounted one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def url(self) -> str:
        return str(self._path)

    def put(self, name: str, data: bytes) -> None:
        path = self._path / name
        draft = path.with_name(path.name + _DRAFT_SUFFIX)
        with as_storage_error("write", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with draft.open("wb") as file:
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


class ObjectStore:
    """A bucket, or a part of one."""

    def __init__(self, url: str) -> None:
        try:
            import obstore
            from obstore.store import from_url
        except ImportError:
            raise ConfigurationError(
                f"{url} needs the extra ship: pip install requite[ship]"
            ) from None
        self._url = url
        self._obstore = obstore
        with self._doing("open", ""):
            self._store: Any = from_url(url)

    @property
    def url(self) -> str:
        return self._url

    def put(self, name: str, data: bytes) -> None:
        with self._doing("write", name):
            self._obstore.put(self._store, name, data)

    def get(self, name: str, size: int, offset: int = 0) -> bytes:
        with self._doing("read", name):
            there = self._obstore.head(self._store, name)["size"]
            length = max(0, min(size, there - offset))
            if not length:
                return b""
            found = self._obstore.get_range(self._store, name, start=offset, length=length)
            return bytes(found)

    def sizes(self, prefix: str) -> dict[str, int]:
        with self._doing("list", prefix):
            listed = self._obstore.list(self._store, prefix=prefix + "/")
            return {found["path"]: found["size"] for part in listed for found in part}

    @contextmanager
    def _doing(self, what: str, name: str) -> Iterator[None]:
        """Turn errors of the store into ours, in one line."""
        try:
            yield
        except (self._obstore.exceptions.NotFoundError, FileNotFoundError):
            place = f"{self._url}/{name}"
            raise LogGone(f"cannot {what} {place}: it is not there (any more).") from None
        except (self._obstore.exceptions.BaseError, OSError, ValueError) as error:
            first_line = str(error).strip().split("\n", 1)[0]
            raise LogFailed(
                f"cannot {what} {self._url}/{name}: {first_line} Check the URL, the credentials in "
                "the environment, and the network."
            ) from error
