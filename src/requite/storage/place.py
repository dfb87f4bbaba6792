"""Places: folders, and parts of object stores, as texts.

A *place* is the absolute path of a folder, or the URL of an object store without a slash at its
end, in a unique form. `/` and a name make a place below it.
"""

from __future__ import annotations

import os
import re
from os import PathLike
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from requite.errors import ConfigurationError

# One letter is a drive of Windows; `pathlib` leaves one slash of two.
_URL: Final = re.compile(r"(file(?=:)|[a-z][a-z0-9+.-]+(?=:/)):(.*)", re.IGNORECASE | re.DOTALL)
_FILE: Final = re.compile(r"/*(?:localhost(?=/))?/+(.*)", re.IGNORECASE | re.DOTALL)

STORES: Final = ("s3", "gs", "az", "abfs", "abfss")
_OTHER_NAMES: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}  # names that Hadoop uses, for example
_KNOWN: Final = ", ".join(f"{scheme}://" for scheme in (*STORES, "s3a"))


def place_of(place: str | PathLike[str], what: str) -> str:
    """Return a place. `what` is the beginning of error messages ("a lake is kept in").

    Raises `ConfigurationError` for any other URL, so that no folder is created with its name.
    """
    return store_url(place, what) or str(_folder(os.fspath(place), what))


def store_url(place: str | PathLike[str], what: str) -> str | None:
    """Return the URL of a store; None for a folder. Raises `ConfigurationError` for any other URL,
    and for one with credentials."""
    text = os.fspath(place)
    url = _URL.fullmatch(text)
    if url is None or url[1].lower() == "file":
        return None
    scheme = _OTHER_NAMES.get(url[1].lower(), url[1].lower())
    if scheme not in STORES:
        raise ConfigurationError(
            f"{text}: {what} a folder, or a store under {_KNOWN}, and {url[1].lower()}: is not"
            " supported; mount the store, and pass the mounted folder; nothing was read or"
            " written"
        )
    found = f"{scheme}://{url[2].strip('/')}"
    parts = urlsplit(found)
    # Of Azure, the name before the @ is that of a container.
    if parts.password or (parts.username and scheme not in ("abfs", "abfss")):
        raise ConfigurationError(
            "the URL of a store must not contain credentials: set them in the environment"
        )
    if not parts.netloc:
        raise ConfigurationError(f"{text} has no bucket: write {scheme}://BUCKET/PATH")
    return found


def is_store(place: str) -> bool:
    """Whether a place is in an object store."""
    return "://" in place


def local_folder(place: str | PathLike[str], what: str) -> Path:
    """Return the absolute path of a folder. Raises `ConfigurationError` for the URL of a store."""
    if store_url(place, what) is not None:
        raise ConfigurationError(
            f"{os.fspath(place)}: {what} a folder that this machine and all executors can"
            " reach, such as a mount of the store, not in a store itself; nothing was read or"
            " written"
        )
    return _folder(os.fspath(place), what)


def _folder(text: str, what: str) -> Path:
    url = _URL.fullmatch(text)
    if url is None:
        return Path(text).expanduser().resolve()
    path = _FILE.fullmatch(url[2])
    if path is None:
        raise ConfigurationError(f"{text}: {what} a folder; write its URL as file:///PATH")
    return Path("/", unquote(path[1])).resolve()
