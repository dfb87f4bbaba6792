"""What a principal may do at a broker, in the broker's terms.

| what a peer asks for | the right that it needs |
|---|---|
| a request for a service | `call`; of the pool P also `pool` of P |
| READY for a service | `serve`; a name of the pool P also by `pool` of P |
| `titanic.request` | `titanic` of `submit`, and `call` of the service that it names |
| `titanic.reply`, `titanic.close` | `titanic` of `submit`; Titanic serves a ticket's owner only |
| other services of Titanic | `admin` of `titanic` |
| a request for another user | `act` of its name, and what the request needs from that user |
| `mmi.service`, `mmi.ping`, `mmi.whoami` | none |
| `mmi.describe` | `call` of the service `NAME.describe`, whose name its body begins |
| `mmi.under` | `pool` of the pool that it names, or `admin` of `stats` |
| `mmi.kick`, `mmi.purge` | `admin` of `kick`, `purge` |
| `mmi.pause`, `mmi.resume` | `admin` of `pause` |
| `mmi.drain` | `admin` of `drain` |
| other services of the broker | `admin` of `stats` |

`lacks_to_…` return the missing right in words for the peer, or "" if nothing is missing.
Source: docs/protocols/mdp-0.3.md, section "Rights".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from requite.principal import Principal, Verb
from requite.protocols.majordomo.wire import MMI_PREFIX

SUBMIT: Final = b"titanic.request"
"""A request to it also needs the right to `call` the service that its body names."""

UNDER: Final = b"mmi.under"
"""For a request that names a pool in its body, the right to manage that `pool` is enough."""

_TITANIC_PREFIX: Final = b"titanic."
_OF_SUBMITTERS: Final = (SUBMIT, b"titanic.reply", b"titanic.close")
_FREE: Final = (b"mmi.service", b"mmi.ping", b"mmi.whoami", b"mmi.describe")

RESERVED: Final = "names that start with mmi. are reserved for the broker"

Right: TypeAlias = tuple[Verb, bytes]
"""A verb, and the name for which it is needed."""

ACTS: Final = {
    b"mmi.kick": "kick",
    b"mmi.pause": "pause",
    b"mmi.resume": "pause",
    b"mmi.purge": "purge",
    b"mmi.drain": "drain",
    b"titanic.retry": "titanic",
}
"""Services for operators that change something: the `admin` right that each needs. Requests to them
are journaled ([ops-journaled])."""


def rights_to_call(name: bytes, body: Sequence[bytes] = ()) -> list[Right]:
    """Return the rights of which a request to `name` needs one; none of them: it needs no right."""
    if name.startswith(MMI_PREFIX):
        if name in _FREE:
            return []
        pools = _of_pool(body[0]) if name == UNDER and body else []
        return [("admin", ACTS.get(name, "stats").encode()), *pools]
    if name.startswith(_TITANIC_PREFIX):
        return [("titanic", b"submit") if name in _OF_SUBMITTERS else ("admin", b"titanic")]
    return [("call", name), *_of_pool(name)]


def rights_to_serve(name: bytes) -> list[Right]:
    """Return the rights of which a worker of `name` needs one."""
    return [("serve", name), *_of_pool(name)]


def lacks_to_call(principal: Principal, name: bytes, body: Sequence[bytes]) -> str:
    """Return which right is missing for a request to `name` with `body`."""
    if principal.rights is None:
        if name not in ACTS:
            principal.remember(name)
        return ""
    rights = rights_to_call(name, body)
    if missing := _lacks(principal, rights):
        return missing
    if name == SUBMIT and body:
        return _lacks(principal, [("call", body[0])])
    if ("call", name) in rights:
        principal.remember(name)
    return ""


def lacks_to_act(principal: Principal, user: bytes, name: bytes) -> str:
    """Return which right is missing to make a request to `name` for a user, apart from the rights
    of that user ([for-right], [for-reserved])."""
    if missing := _lacks(principal, [("act", user)]):
        return missing
    if name.startswith((MMI_PREFIX, _TITANIC_PREFIX)):
        return f"{principal} can send requests to {name.decode(errors='replace')!r} only as itself"
    return ""


def lacks_to_serve(principal: Principal, name: bytes) -> str:
    """Return which right is missing to serve `name`."""
    return _lacks(principal, rights_to_serve(name))


def _of_pool(name: bytes) -> list[Right]:
    pool, slash, _key = name.partition(b"/")
    return [("pool", pool)] if slash else []


def _lacks(principal: Principal, rights: Sequence[Right]) -> str:
    if not rights or any(principal.may(verb, name) for verb, name in rights):
        return ""
    return _missing(principal, *rights[0])


def _missing(principal: Principal, verb: Verb, name: bytes) -> str:
    shown = name.decode(errors="replace")
    does = "act for" if verb == "act" else verb
    return (
        f"{principal} has no right to {does} {shown!r}; the broker's operator can grant it in the"
        f" access file ({verb} = [...])"
    )
