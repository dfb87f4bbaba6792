"""What visitors of the page of a broker may do, in words.

Each act is a request of `requite admin` or `requite titanic` to the broker, or a switch of its
pair; `acting.py` performs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from requite.page.rendering import act_url, service_url, text
from requite.principal import Principal
from requite.protocols.titanic.wire import RETRY

SWITCH: Final = "switch"
"""The act that is no request to the broker."""


class Act(NamedTuple):
    """An act: the button that asks for it, and the `admin` right that it needs.

    `title` asks whether to do it, `about` says what it means, `done` says that it is done. In the
    texts, `{of}` is what it is done to, and `{count}` the number in the broker's answer. `service`
    is the request. `takes_reason`: a visitor may say why.
    """

    button: str
    right: str
    title: str
    about: str
    done: str
    service: str = ""
    takes_reason: bool = False


ACTS: Final[Mapping[str, Act]] = {
    "pause": Act(
        "Pause",
        "pause",
        "Pause {of}?",
        "Workers get no more requests of the service. Those that they have go on; new ones wait in"
        " the queue, and time out as usual.",
        "{of} is paused. Requests in its queue: {count}.",
        "mmi.pause",
    ),
    "resume": Act(
        "Resume",
        "pause",
        "Resume {of}?",
        "Workers get the requests of the service again, in the order of each client.",
        "{of} is not paused any more. Requests that waited in its queue: {count}.",
        "mmi.resume",
    ),
    "purge": Act(
        "Purge",
        "purge",
        "Cancel the queued requests of {of}?",
        "Their callers get Cancelled: these requests have not run. Requests at workers go on.",
        "Requests of {of} that were cancelled: {count}.",
        "mmi.purge",
    ),
    "kick": Act(
        "Disconnect",
        "kick",
        "Disconnect the worker {of}?",
        "Requests that it has go to other workers; those that must not run twice fail, and may have"
        " run. The worker may connect again at once.",
        "Connections that were ended: {count}.",
        "mmi.kick",
        takes_reason=True,
    ),
    "drain": Act(
        "Drain",
        "drain",
        "Drain this broker?",
        "It refuses new requests, finishes the pending ones, and ends. In a pair, the other broker"
        " takes over.",
        "The broker refuses new requests, and ends with the last of those that are pending:"
        " {count}. This page ends with it.",
        "mmi.drain",
    ),
    SWITCH: Act(
        "Switch",
        "switch",
        "Switch the active broker of the pair?",
        "The active broker stops serving, and the other one takes over. Clients send their requests"
        " to it again; those that must not run twice and may have run fail.",
        "The brokers of the pair change places.",
    ),
    "retry": Act(
        "Retry",
        "titanic",
        "Retry the stored request {of}?",
        "Titanic set it aside after its last attempt. It is sent to a worker again, and its"
        " attempts are counted anew. It may have run before.",
        "The request is retried.",
        RETRY,
    ),
}


class Link(NamedTuple):
    """A link to the question whether to do something."""

    label: str
    url: str


OF_SERVICE: Final = ("pause", "resume", "purge")
OF_BROKER: Final = ("drain",)
OF_PAIR: Final = (SWITCH,)
KICK: Final = ("kick",)


def links(principal: Principal, verbs: tuple[str, ...], of: str = "") -> list[Link]:
    """Return the links to those of the acts that a visitor may do."""
    known = [(verb, ACTS[verb]) for verb in verbs]
    return [Link(act.button, act_url(verb, of)) for verb, act in known if may(principal, act)]


def may(principal: Principal, act: Act) -> bool:
    """Whether a visitor has the right to an act."""
    return principal.may("admin", act.right)


def words(template: str, of: str, count: object = "") -> str:
    """Return a text of an act."""
    return template.format(of=text(of), count=count)


def way_back(verb: str, of: str, service: str) -> Link:
    """Return the link to the page where an act was asked for."""
    name = of if verb in OF_SERVICE else service
    if name:
        return Link(text(name), service_url(name))
    return Link("the poisoned requests", "/stored") if verb == "retry" else Link("the broker", "/")
