"""What a principal may do at a broker, in the broker's terms.

| what a peer asks for | the right that it needs |
|---|---|
| a request for a service | `call`; of the pool P also `pool` of P |
| READY for a service | `serve`; a name of the pool P also by `pool` of P |
| `titanic.request` | `titanic` of `submit`, and `call` of the service that it names |
| `titanic.reply`, `titanic.close` | `titanic` of `submit`; Titanic serves a ticket's owner only |
| other services of Titanic | `admin` of `titanic` |
| `mmi.service`, `mmi.ping`, `mmi.whoami` | none |
| `mmi.under` | `pool` of the pool that it names, or `admin` of `stats` |
| `mmi.kick`, `mmi.purge` | `admin` of `kick`, `purge` |
| `mmi.pause`, `mmi.resume` | `admin` of `pause` |
| `mmi.drain` | `admin` of `drain` |
| other services of the broker | `admin` of `stats` |

Functions return the missing right in words for the peer, or "" if nothing is missing.
Source: docs/protocols/mdp-0.3.md, section "Rights".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from requite.principal import Principal, Verb
from requite.protocols.majordomo.wire import MMI_PREFIX

_TITANIC_PREFIX: Final = b"titanic."
_SUBMIT: Final = b"titanic.request"
_OF_SUBMITTERS: Final = (_SUBMIT, b"titanic.reply", b"titanic.close")
_FREE: Final = (b"mmi.service", b"mmi.ping", b"mmi.whoami")
_UNDER: Final = b"mmi.under"

ACTS: Final = {
    b"mmi.kick": "kick",
    b"mmi.pause": "pause",
    b"mmi.resume": "pause",
    b"mmi.purge": "purge",
    b"mmi.drain": "drain",
}
"""Management services that change something: the `admin` right that each needs."""


def lacks_to_call(principal: Principal, name: bytes, body: Sequence[bytes]) -> str:
    """Return which right is missing for a request to `name` with `body`."""
    if principal.rights is None:
        principal.remember(name)
        return ""
    if name.startswith(MMI_PREFIX):
        return _lacks_to_manage(principal, name, body)
    if name.startswith(_TITANIC_PREFIX):
        if name not in _OF_SUBMITTERS:
            is_operator = principal.may("admin", "titanic")
            return "" if is_operator else _missing(principal, "admin", b"titanic")
        if not principal.may("titanic", "submit"):
            return _missing(principal, "titanic", b"submit")
        if name == _SUBMIT and body and not principal.may("call", body[0]):
            return _missing(principal, "call", body[0])
        return ""
    if principal.may("call", name) or _manages_pool_of(principal, name):
        principal.remember(name)
        return ""
    return _missing(principal, "call", name)


def lacks_to_serve(principal: Principal, name: bytes) -> str:
    """Return which right is missing to serve `name`."""
    if principal.may("serve", name) or _manages_pool_of(principal, name):
        return ""
    return _missing(principal, "serve", name)


def _lacks_to_manage(principal: Principal, name: bytes, body: Sequence[bytes]) -> str:
    if name in _FREE:
        return ""
    needed = ACTS.get(name, "stats")
    if principal.may("admin", needed):
        return ""
    if name == _UNDER and body and _manages_pool_of(principal, body[0]):
        return ""
    return _missing(principal, "admin", needed.encode())


def _manages_pool_of(principal: Principal, name: bytes) -> bool:
    pool, slash, _key = name.partition(b"/")
    return bool(slash) and principal.may("pool", pool)


def _missing(principal: Principal, verb: Verb, name: bytes) -> str:
    shown = name.decode(errors="replace")
    return (
        f"{principal} has no right to {verb} {shown!r}; the broker's operator can grant it in the"
        f" access file ({verb} = [...])"
    )
