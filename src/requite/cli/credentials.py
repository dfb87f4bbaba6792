"""User names and passwords, and keys of CURVE, from files named by an option or the environment.
There is no option for a password or a secret key: all users of the machine can read command lines.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import quote

from requite.errors import ConfigurationError
from requite.shell.curve import CurveListener
from requite.storage.private import read_private

CREDENTIALS_FILE_VARIABLE: Final = "REQUITE_CREDENTIALS_FILE"
CURVE_KEY_FILE_VARIABLE: Final = "REQUITE_CURVE_KEY_FILE"
CURVE_SERVER_KEY_VARIABLE: Final = "REQUITE_CURVE_SERVER_KEY"
_CURVE_SCHEMES: Final = ("mdp", "flp", "pirate")


def read_users(path: Path) -> dict[str, str]:
    """Read passwords by user name.

    The file has `user:password` lines (UTF-8). Empty lines and comments (#) are skipped. Only its
    user may have access to it. Raises `ConfigurationError`, with the number of the line and not its
    text.
    """
    text = read_private(path, "passwords")
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


def curve_listener(
    key_file: Path | None, clients: Path | None, access: Path | None
) -> CurveListener | Path | None:
    """Return the keys of a broker; None without files. With an access file, which has the keys of
    clients, that is the key file. Raises `ConfigurationError`."""
    if key_file is None and clients is None:
        return None
    if access is not None:
        if clients is not None:
            raise ConfigurationError(
                "remove --curve-clients: the users of --access have keys (curve = ...)"
            )
        return key_file
    if key_file is None or clients is None:
        raise ConfigurationError(
            "CURVE requires two files: --curve-key-file with the broker's secret key, and"
            " --curve-clients with the public keys of clients and workers (or --access)"
        )
    return CurveListener(key_file, clients)


def names_keys(url: str) -> bool:
    """Whether a URL has keys of CURVE."""
    options = url.partition("?")[2].split("&")
    return any(option.startswith(("curve=", "curve_key_file=")) for option in options)


def with_keys(url: str, server_key: str | None, key_file: Path | None) -> str:
    """Add keys of CURVE to a URL. Raises `ConfigurationError` for one without the other, and for
    protocols without CURVE."""
    if server_key is None and key_file is None:
        return url
    if server_key is None or key_file is None:
        raise ConfigurationError(
            "CURVE requires both --curve-server-key, the broker's public key, and --curve-key-file,"
            " the file with the own secret key"
        )
    if names_keys(url):
        raise ConfigurationError("keys of CURVE are in the URL and in options; remove one of them")
    scheme = url.partition("://")[0]
    if scheme.partition("+")[0] not in _CURVE_SCHEMES:
        raise ConfigurationError(
            f"{scheme}:// has no keys of CURVE: remove --curve-server-key and --curve-key-file;"
            f" {', '.join(f'{each}://' for each in _CURVE_SCHEMES)} have them"
        )
    given = {"curve": server_key, "curve_key_file": str(key_file)}
    options = "&".join(f"{name}={quote(value, safe='')}" for name, value in given.items())
    return f"{url}{'&' if '?' in url else '?'}{options}"
