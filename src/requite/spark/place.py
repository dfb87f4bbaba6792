"""Where journals and lakes are: in folders, which may be given as `file:` URLs."""

from __future__ import annotations

import os
import re
from os import PathLike
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from requite.errors import ConfigurationError

# One letter is a drive of Windows; `pathlib` leaves one slash of two.
_URL: Final = re.compile(r"([a-z][a-z0-9+.-]+):/+(.*)", re.IGNORECASE | re.DOTALL)


def local_folder(place: str | PathLike[str], what: str) -> Path:
    """Return the folder that a path or a `file:` URL names.

    Raises `ConfigurationError` for the URL of a store, of which no folder must be made.
    """
    text = os.fspath(place)
    url = _URL.fullmatch(text)
    if url is None:
        return Path(text).expanduser().resolve()
    if url[1].lower() == "file":
        return Path("/", unquote(url[2])).resolve()
    raise ConfigurationError(
        f"{what} cannot be in a store ({url[1]}://…): name a folder that this machine and all "
        "executors see, such as a mount of the store. Nothing was read or written"
    )
