"""The token that a manager requires of clients that change its pool, read from a file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from requite.errors import ConfigurationError
from requite.storage.private import is_exposed


def read_token(path: str | Path, setting: str) -> str:
    """Read the token in a file that only its owner may access.

    Raises `ConfigurationError`, which begins with `setting` and never shows the file's content.
    """
    where = f"{setting}: {path}"
    try:
        with Path(path).open(encoding="ascii") as file:
            status = os.fstat(file.fileno())
            if is_exposed(status):
                mode = stat.S_IMODE(status.st_mode)
                raise ConfigurationError(
                    f"{where} is accessible to other users (mode {mode:04o}): run chmod 600 on it"
                )
            token = file.read().strip()
    except UnicodeDecodeError:
        raise ConfigurationError(f"{where} must have one token of printable ASCII") from None
    except OSError as error:
        raise ConfigurationError(f"{where} cannot be read: {error.strerror}") from None
    if not token:
        raise ConfigurationError(
            f"{where} is empty: write a token to it, such as 32 random bytes in hexadecimal"
        )
    if not token.isprintable() or " " in token:
        raise ConfigurationError(f"{where} must have one token of printable ASCII")
    return token
