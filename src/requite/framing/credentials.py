"""Choose the ZMTP mechanism for the credentials of a client or a broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from requite.errors import ConfigurationError, LocalViolation
from requite.framing.zmtp_mechanism import Mechanism, Null, PlainClient, PlainServer, known_users

_MISSING: Final = Null(
    "the broker requires a user name and password; pass `--credentials-file`, or put them in the"
    " URL (mdp://USER:PASSWORD@HOST)",
    "the peer requires keys (ZMTP CURVE): pass `--curve-server-key` and `--curve-key-file`, or put"
    " them in the URL (?curve=KEY&curve_key_file=FILE)",
)
NO_PASSWORDS: Final = Null(
    "the peer sends a user name and password, but this broker has no users with passwords: start"
    " the broker with `--credentials-file`, give its users passwords in the access file, or remove"
    " the credentials from the peer",
    "the peer uses keys (ZMTP CURVE), but this broker has none: start the broker with"
    " `--curve-key-file`, or remove the keys from the peer",
)

NULL_THAT_WAITS: Final = replace(NO_PASSWORDS, waits=True)
"""The mechanism for peers that are known by their certificate or user id."""


def mechanism_to_show(user: str | None, password: str | None) -> Mechanism:
    """Return the mechanism for dialling a broker, with or without credentials.

    Raises `ConfigurationError` for a user name or password that PLAIN cannot carry.
    """
    if user is None or password is None:
        return _MISSING
    try:
        return PlainClient(user, password)
    except LocalViolation as violation:
        raise ConfigurationError(str(violation)) from None


def mechanism_to_check(users: Mapping[str, str] | None) -> Mechanism:
    """Return the mechanism of a broker that admits only `users` (passwords by user name); None: no
    authentication."""
    return NO_PASSWORDS if users is None else PlainServer(known_users(users))
