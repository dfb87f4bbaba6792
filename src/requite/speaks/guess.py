"""Suggest a URL in place of one whose scheme is missing or unknown, for the error message. The
suggestion is never dialled."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

# `name:rest`, `name:/rest` and `name//rest`, where `name://rest` was meant; of `host:port` the rest
# is a number.
_HALF_A_SEPARATOR: Final = re.compile(r"([a-z+]+)(?::/?(?![/\d])|//)(.*)", re.DOTALL)
# A port alone and a relative path would both be read as the name of a host.
_NO_HOST: Final = re.compile(r"\d+|\.\.?/.*", re.DOTALL)
_OF_RABBITMQ: Final = re.compile(r":567([12])(?=[/?]|$)")
_SEPARATOR: Final = "://"

# Transports, which do not determine the protocol; and SP, which does not determine the transport.
_SEVERAL: Final = {
    "tcp": ("mdp", "sp+tcp"),
    "ipc": ("mdp+ipc", "sp+ipc"),
    "tls": ("mdp+tls", "sp+tls"),
    "ws": ("sp+ws",),
    "wss": ("sp+wss",),
    "sp": ("sp+tcp",),
}
_WHAT_IS_THERE: Final = {
    "mdp": "a broker",
    "mdp+tls": "a broker, over TLS",
    "mdp+ipc": "a broker",
    "sp+tcp": "a service without a broker",
    "sp+tls": "a service without a broker, over TLS",
    "sp+ipc": "a service without a broker",
}
_NOBODY_LISTENS: Final = ("mdp", "amqp")  # only brokers do, and they take no such URL


def explain(
    shown: str, schemes: Sequence[str], can_be_read: Callable[[str], bool], *, listening: bool
) -> str:
    """Say what is wrong with a URL that has none of `schemes`; `shown` has no password.

    Suggests only URLs for which `can_be_read` is true.
    """
    name, separator, rest = shown.partition(_SEPARATOR)
    if separator:
        wrong = f"unknown scheme {name + separator!r}"
        meant = [(each, rest) for each in _similar(name, schemes)]
    else:
        wrong = "it has no scheme"
        meant = _with_a_scheme(shown, schemes)
    if listening:
        meant = [
            ("sp+tcp" if scheme == "mdp" else scheme, rest)
            for scheme, rest in meant
            if scheme == "mdp" or not scheme.startswith(_NOBODY_LISTENS)
        ]
        meant = list(dict.fromkeys(meant))
    meant = [each for each in meant if can_be_read(_SEPARATOR.join(each))]
    if meant:
        return f"{wrong}; did you mean {_alternatives(meant)}?"
    known = ", ".join(f"{scheme}{_SEPARATOR}" for scheme in schemes)
    return f"the scheme must be one of {known}"


def _similar(name: str, schemes: Sequence[str]) -> Iterable[str]:
    lower = name.lower()
    if lower in schemes:
        return (lower,)
    if lower in _SEVERAL:
        return _SEVERAL[lower]
    if lower.removesuffix("+tcp") in schemes:  # schemes that use TCP anyway
        return (lower.removesuffix("+tcp"),)
    from difflib import get_close_matches  # imported here, since it is rarely needed

    return get_close_matches(lower, schemes, n=1)


def _with_a_scheme(shown: str, schemes: Sequence[str]) -> list[tuple[str, str]]:
    if _NO_HOST.fullmatch(shown) or any(character.isspace() for character in shown):
        return []
    half = _HALF_A_SEPARATOR.fullmatch(shown)
    if half is not None and half[1] in schemes:
        return [(half[1], half[2])]
    if shown.startswith("/") and not shown.startswith("//"):
        return [(scheme, shown) for scheme in _SEVERAL["ipc"]]
    rabbit = _OF_RABBITMQ.search(shown)
    scheme = "mdp" if rabbit is None else "amqp" if rabbit[1] == "2" else "amqps"
    schemes = [scheme]
    if scheme == "mdp" and "@" in shown:  # a password goes to another machine over TLS only
        schemes.append("mdp+tls")
    return [(each, shown.lstrip("/")) for each in schemes]


def _alternatives(meant: Sequence[tuple[str, str]]) -> str:
    if len(meant) == 1:
        [(scheme, rest)] = meant
        return f"{scheme}{_SEPARATOR}{rest}"
    return " or ".join(
        f"{scheme}{_SEPARATOR}{rest} ({_WHAT_IS_THERE[scheme]})" for scheme, rest in meant
    )
