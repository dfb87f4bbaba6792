"""What operators do to a running broker: kick peers, pause and resume services, purge, drain.

| service | request body | reply body |
|---|---|---|
| `mmi.kick` | a peer, and optionally the reason | `{"kicked"}`: how many connections ended |
| `mmi.pause` | a service name | `{"queued"}`: how many requests wait |
| `mmi.resume` | a service name | `{"queued"}` |
| `mmi.purge` | a service name | `{"purged"}`: how many requests were cancelled |
| `mmi.drain` | anything | `{"draining"}`: how many requests are pending |

A peer is an address or instance in hex, as `mmi.workers` shows them, or `user:` and the name of a
principal, for all its connections. The answer is `404` if there is no such peer or service.

Source: docs/protocols/mdp-0.3.md, section "Operating a broker" (rule ids in brackets).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final

from requite import engine
from requite.chronicle import Kind
from requite.engine import Effect, Peer, Warn
from requite.principal import INSIDE, Principal
from requite.protocols.majordomo.directory import Directory
from requite.protocols.majordomo.dispatch import Dispatcher
from requite.protocols.majordomo.parties import Client, Departed, Party, Service, Worker
from requite.protocols.majordomo.permissions import ACTS
from requite.protocols.majordomo.pushback import Pushback
from requite.protocols.majordomo.recorders import BrokerObserver
from requite.protocols.majordomo.workforce import Workforce
from requite.request import Status

_NOT_FOUND: Final = b"404"
_USER: Final = b"user:"
_SHOWN_MAX: Final = 500  # bytes of what an operator names, and of the reason


class Operations:
    """Performs the management requests that change something. Effects go to `out`. `drain` drains
    the broker, and returns how many requests are pending."""

    def __init__(
        self,
        parties: dict[Peer, Party],
        directory: Directory,
        dispatcher: Dispatcher,
        workforce: Workforce,
        pushback: Pushback,
        out: list[Effect],
        observer: BrokerObserver,
        drain: Callable[[float], int],
    ) -> None:
        self._parties = parties
        self._directory = directory
        self._dispatcher = dispatcher
        self._workforce = workforce
        self._pushback = pushback
        self._out = out
        self._observer = observer
        self._drain = drain
        self._on_services: dict[bytes, Callable[[Service, str, float], dict[str, int]]] = {
            b"mmi.pause": self._pause,
            b"mmi.resume": self._resume,
            b"mmi.purge": self._purge,
        }

    def perform(
        self,
        operator: Client,
        principal: Principal,
        name: bytes,
        body: Sequence[bytes],
        now: float,
    ) -> bytes:
        """Perform and journal an act of `principal` ([ops-journaled]); return the answer to the
        client `operator`. `name` is one of the broker's own in `ACTS`."""
        subject, who = body[0], str(principal)
        if name == b"mmi.kick":
            reason = b" ".join(body[1:])[:_SHOWN_MAX].decode(errors="replace")
            done = self._kick(operator, subject, f"{who} kicked it: {reason or 'no reason'}", now)
        elif name == b"mmi.drain":
            done = {"draining": self._drain(now)}
        else:
            service = self._directory.services.get(subject)
            act = self._on_services[name]
            done = {} if service is None else act(service, who, now)
        outcome = ", ".join(f"{count} {what}" for what, count in done.items()) or "not found"
        self.admitted(principal, name, subject, now, f": {outcome}")
        return json.dumps(done, separators=(",", ":")).encode() if done else _NOT_FOUND

    def admitted(
        self, principal: Principal, name: bytes, subject: bytes, now: float, outcome: str = ""
    ) -> None:
        """Journal and log an act that `principal` may do ([ops-journaled])."""
        shown = subject[:_SHOWN_MAX].decode(errors="replace")
        text = f"{name.decode()} {shown}".rstrip() + outcome
        self._observer.access(Kind.ADMITTED, principal, "admin", ACTS[name].encode(), now, text)
        self._out.append(Warn("operator", f"{principal}: {text}"))

    def denied(self, principal: Principal, name: bytes, reason: str, now: float) -> None:
        """Journal a denied act ([ops-journaled])."""
        self._observer.access(Kind.DENIED, principal, "admin", ACTS[name].encode(), now, reason)

    # --- peers ----------------------------------------------------------------------------------
    def _kick(self, operator: Client, subject: bytes, reason: str, now: float) -> dict[str, int]:
        """End connections ([ops-kick]), but not those of the broker's own process, and not that of
        the operator, who could not get the answer."""
        found = [
            (peer, party)
            for peer, party in self._parties.items()
            if party is not operator and _is_meant(party, subject)
        ]
        workers = {party: reason for _peer, party in found if isinstance(party, Worker)}
        self._workforce.dismiss_all(workers, engine.Cause.DONE, now)
        for peer, party in found:
            if not isinstance(party, Worker):
                del self._parties[peer]
                self._out.append(engine.Disconnect(peer, reason, engine.Cause.DONE))
            if isinstance(party, Client):
                self._dispatcher.forget(party, now)
            else:
                self._pushback.lost(peer)
        return {"kicked": len(found)} if found else {}

    # --- services -------------------------------------------------------------------------------
    def _pause(self, service: Service, _who: str, _now: float) -> dict[str, int]:
        """Dispatch no more requests of a service ([ops-pause-holds])."""
        service.is_paused = True
        self._directory.keep(service)
        return {"queued": service.queue.length}

    def _resume(self, service: Service, _who: str, now: float) -> dict[str, int]:
        """Dispatch the requests of a service again, in order ([ops-resume-order])."""
        queued = service.queue.length
        if service.is_paused:
            service.is_paused = False
            if service.is_bare:
                for pending in service.queue:
                    self._dispatcher.start_grace(pending, now)
            self._dispatcher.feed(service, now)
        return {"queued": queued}

    def _purge(self, service: Service, who: str, now: float) -> dict[str, int]:
        """Cancel the queued requests of a service ([ops-purge-answers])."""
        reason = f"{who} purged the queue of {service.name.decode(errors='replace')}"
        queued = list(service.queue)
        for pending in queued:
            self._dispatcher.fail(pending, Status.CANCELLED, reason, now)
        return {"purged": len(queued)}


def _is_meant(party: Party, subject: bytes) -> bool:
    """Whether `subject` names a peer, by its address, instance or principal."""
    if isinstance(party, Departed) or party.principal is INSIDE:
        return False
    if subject.startswith(_USER):
        return party.principal.name.encode() == subject.removeprefix(_USER)
    names = (party.address, party.name) if isinstance(party, Worker) else (party.address,)
    return subject.lower() in [name.hex().encode() for name in names]
