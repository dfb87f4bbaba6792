"""User names and passwords, from a file named by an option or the environment. There is no option
for a password: all users of the machine can read command lines."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final
from urllib.parse import quote

from requite.errors import ConfigurationError
from requite.storage.private import is_exposed

CREDENTIALS_FILE_VARIABLE: Final = "REQUITE_CREDENTIALS_FILE"


def read_users(path: Path) -> dict[str, str]:
    """Read passwords by user name.

    The file has `user:password` lines (UTF-8). Empty lines and comments (#) are skipped. Only its
    user may have access to it. Raises `ConfigurationError`, with the number of the line and not its
    text.
    """
    try:
        with path.open(encoding="utf-8") as file:
            status = os.fstat(file.fileno())
            if is_exposed(status):
                mode = stat.S_IMODE(status.st_mode)
                raise ConfigurationError(
                    f"other users of this machine may use {path} (mode {mode:04o}), which has"
                    f" passwords: run `chmod 600 {path}`, and change the passwords if others may"
                    " have read them"
                )
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read the credentials in {path}: {error}") from error
    users: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.startswith("#"):
            user, colon, password = line.partition(":")
            if not user or not colon:
                raise ConfigurationError(f"line {number} of {path} is not `user:password`")
            if not password:
                raise ConfigurationError(f"line {number} of {path} has an empty password")
            users[user] = password
    if not users:
        raise ConfigurationError(f"{path} has no credentials; write `user:password` lines")
    return users


def read_one_user(path: Path | None) -> tuple[str, str] | None:
    """Read the user name and password of a client or worker; None without a file."""
    if path is None:
        return None
    users = read_users(path)
    if len(users) > 1:
        raise ConfigurationError(
            f"{path} names {len(users)} users; a client or worker needs a file with one"
        )
    return next(iter(users.items()))


def names_user(url: str) -> bool:
    """Whether a URL has credentials."""
    return "@" in url.partition("://")[2].partition("?")[0]


def with_user(url: str, user: tuple[str, str]) -> str:
    """Add a user name and a password to a URL without credentials."""
    if names_user(url):
        raise ConfigurationError("credentials are in the URL and in a file; remove one of them")
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url  # parsing it raises later
    name, password = (quote(part, safe="") for part in user)
    return f"{scheme}{separator}{name}:{password}@{rest}"
