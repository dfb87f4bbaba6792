"""CURVE in URLs: the keys of clients and workers that dial, and of servers that listen.

    mdp://HOST/echo?curve=SERVER_KEY&curve_key_file=own.key
    flp://HOST:5555?curve_key_file=own.key&curve_clients=clients.keys          (to listen)

`curve` is the server's public key in Z85, or a file that has it. In a key the characters & # % + ?
are percent-encoded, as in the value of any option.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from requite.framing import Mechanism, mechanism_to_show
from requite.framing.zmtp_mechanism import Null
from requite.shell.curve import CurveDialler, CurveListener
from requite.speaks.url import ServiceUrl, refuse

DIALLING: Final = ("curve", "curve_key_file")
LISTENING: Final = ("curve_key_file", "curve_clients")
CURVE_OPTIONS: Final = tuple(dict.fromkeys(DIALLING + LISTENING))

MakeMechanism = Callable[[], Mechanism]
"""Returns the mechanism of the next connection."""

_NO_KEYS: Final = Null(
    when_curve="the peer uses keys (ZMTP CURVE), but this server has none: add curve_key_file and"
    " curve_clients to its URL, or remove the keys from the peer"
)


def check_curve(url: ServiceUrl, *, listening: bool, shown: str) -> None:
    """Refuse a URL with some of the options only, or with those of the other side. Raises
    `ConfigurationError`."""
    given = [name for name in CURVE_OPTIONS if name in url.options]
    needed = LISTENING if listening else DIALLING
    if not given:
        return
    for name in given:
        if name not in needed:
            side = "connecting" if listening else "listening"
            refuse(shown, f"the option {name!r} is only for {side}")
    for name in needed:
        if name not in given:
            refuse(shown, f"CURVE requires both options, {' and '.join(needed)}")
    if url.user is not None:
        refuse(shown, "it has a user name and keys of CURVE; ZMTP uses one of them")


def dialling_mechanism(url: ServiceUrl) -> MakeMechanism:
    """Return the mechanism for dialling a URL. Raises `ConfigurationError` for bad keys."""
    if "curve" in url.options:
        return CurveDialler(url.options["curve"], url.options["curve_key_file"]).mechanism
    mechanism = mechanism_to_show(url.user, url.password)
    return lambda: mechanism


def listening_mechanism(url: ServiceUrl) -> MakeMechanism:
    """Return the mechanism for listening at a URL. Raises `ConfigurationError` for bad keys."""
    if "curve_key_file" in url.options:
        return CurveListener(url.options["curve_key_file"], url.options["curve_clients"]).mechanism
    return no_keys


def no_keys() -> Mechanism:
    """Return the mechanism of a listener without keys."""
    return _NO_KEYS
