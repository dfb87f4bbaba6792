"""Requests that were never accepted, and the negative replies to all requests.

A request is refused for a missing right, at a limit, while the broker drains, or because its client
has long been behind. Under overload most requests end that way, so each costs a fraction of one
that is served. Rule ids in brackets are those of docs/protocols/mdp-0.3.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from requite.engine import Carried, Effect, Refused, Send, SendAll, Warn
from requite.errors import RemoteViolation
from requite.protocols.majordomo.lateness import refused_up_to_s
from requite.protocols.majordomo.parties import Client
from requite.protocols.majordomo.policy import BrokerPolicy
from requite.protocols.majordomo.recorders import BrokerObserver
from requite.protocols.majordomo.wire import ClientRequest
from requite.request import Status

_BEHIND: Final = (
    "the broker is overloaded: for half of the request's timeout it could not handle all that the"
    " client sent"
)


class Refusals:
    """Answers requests negatively. Effects go to `out`, in order.

    `refused` counts requests that were never accepted, by status.
    """

    def __init__(self, policy: BrokerPolicy, observer: BrokerObserver, out: list[Effect]) -> None:
        self._policy = policy
        self._observer = observer
        self._is_observed = observer.keeps_journal or observer.makes_notes
        self._out = out
        self.refused = [0] * len(Status)

    def refuse(
        self, client: Client, request: ClientRequest, status: Status, reason: str, now: float
    ) -> None:
        """Answer a request that was never accepted."""
        self.refused[status] += 1
        service, request_id = request.service, request.request_id
        self.tell(client, service, request_id, status, [reason.encode()], 0)
        self._observer.refused(request.call_id, service, status, reason, now)
        if self._observer.makes_notes:
            facts = {"service": service, "client": client.address, "request_id": request_id}
            self._observer.remark("refused", facts | {"status": status.name}, self._out)

    def refuse_late(
        self, client: Client, messages: Iterator[Carried], now: float, behind_s: float
    ) -> Iterator[Carried]:
        """Refuse the requests among the messages of a client that has long been behind
        ([client-behind]); yield the other messages, in order."""
        decode, pending = client.dialect.decode_from_client, client.pending
        late: list[ClientRequest] = []
        refused_up_to_ms = 1000 * refused_up_to_s(behind_s)
        for message in messages:
            try:
                command = decode(message)
            except RemoteViolation:
                self._refuse_all(client, late, now)
                raise
            if (
                command.__class__ is ClientRequest
                and 0 < command.timeout_ms <= refused_up_to_ms
                and command.request_id not in pending
            ):
                late.append(command)
                continue
            self._refuse_all(client, late, now)
            late = []
            yield message
        self._refuse_all(client, late, now)

    def _refuse_all(self, client: Client, late: Sequence[ClientRequest], now: float) -> None:
        if not late:
            return
        if self._is_observed:
            for request in late:
                self.refuse(client, request, Status.OVERLOADED, _BEHIND, now)
        else:
            self.refused[Status.OVERLOADED] += len(late)
            final, body = client.dialect.client_final, [_BEHIND.encode()]
            replies = [final(b"", body, each.request_id, Status.OVERLOADED, 0) for each in late]
            self._out.append(SendAll(client.peer, replies))
        self._out.append(Refused(client.peer, len(late)))

    def tell(
        self,
        client: Client,
        service: bytes,
        request_id: int,
        status: Status,
        body: list[bytes],
        attempts: int,
    ) -> None:
        """Send the negative reply to a request, in what the client's dialect has for it."""
        dialect = client.dialect
        if status is Status.DENIED:
            status = client.denied
        if not dialect.has_ids:
            if not self._policy.tell_old_clients:
                text = body[0].decode(errors="replace")
                silence = (
                    f"a client of MDP {dialect.version}, which has no error replies, gets no"
                    f" answer: {status.name}, {text}"
                )
                self._out.append(Warn("silent-failure", silence))
                return
            body = [b"requite-error " + status.name.encode(), body[0]]
        message = dialect.client_final(service, body, request_id, status, attempts)
        self._out.append(Send(client.peer, message))
