"""User names and passwords: from a file that an option or the environment names, never from the
command line, which everybody on the machine can read."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import quote

from requite.errors import ConfigurationError

CREDENTIALS_FILE_VARIABLE: Final = "REQUITE_CREDENTIALS_FILE"


def read_users(path: Path | None) -> dict[str, str] | None:
    """Read `user:password` lines (UTF-8; empty lines and those that start with # do not count).

    None without a file. Raises `ConfigurationError`, which tells the line and not what is in it.
    """
    if path is None:
        return None
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the credentials in {path} cannot be read: {error}") from error
    users: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.startswith("#"):
            user, colon, password = line.partition(":")
            if not user or not colon:
                raise ConfigurationError(f"line {number} of {path} is not `user:password`")
            users[user] = password
    if not users:
        raise ConfigurationError(f"there are no credentials in {path}")
    return users


def read_one_user(path: Path | None) -> tuple[str, str] | None:
    """Read the one user that a client or worker is; None without a file."""
    users = read_users(path)
    if users is None:
        return None
    if len(users) > 1:
        raise ConfigurationError(f"{path} names {len(users)} users; whoever connects is one")
    return next(iter(users.items()))


def names_user(url: str) -> bool:
    """Whether there are credentials in a URL."""
    return "@" in url.partition("://")[2].partition("?")[0]


def with_user(url: str, user: tuple[str, str]) -> str:
    """Put a user name and a password into a URL that has none."""
    if names_user(url):
        raise ConfigurationError("there are credentials in the URL and in a file; give one of them")
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url  # which is refused when it is read
    name, password = (quote(part, safe="") for part in user)
    return f"{scheme}{separator}{name}:{password}@{rest}"
