"""Which folder a path or a `file:` URL names."""

from __future__ import annotations

import os
import re
from os import PathLike
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from requite.errors import ConfigurationError

# One letter is a drive of Windows; `pathlib` leaves one slash of two.
_URL: Final = re.compile(r"(file(?=:)|[a-z][a-z0-9+.-]+(?=:/)):(.*)", re.IGNORECASE | re.DOTALL)
_FILE: Final = re.compile(r"/*(?:localhost(?=/))?/+(.*)", re.IGNORECASE | re.DOTALL)


def local_folder(place: str | PathLike[str], what: str) -> Path:
    """Return the folder, as an absolute path; `what` says what it is for ("a lake is kept in").

    Raises `ConfigurationError` for the URL of a store: no folder must be named after it.
    """
    text = os.fspath(place)
    url = _URL.fullmatch(text)
    if url is None:
        return Path(text).expanduser().resolve()
    path = _FILE.fullmatch(url[2]) if url[1].lower() == "file" else None
    if path is None:
        raise ConfigurationError(
            f"{text}: {what} a folder that this machine and all executors see (a mount of the "
            "store, say), and not under such a URL; nothing was read or written"
        )
    return Path("/", unquote(path[1])).resolve()
