"""Broken brokers with an access file: each breaks one rule about rights or quotas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from requite.engine import Cause, Send
from requite.principal import Principal, Rights
from requite.protocols.majordomo.authorizer import Authorizer
from requite.protocols.majordomo.broker import MajordomoBroker
from requite.protocols.majordomo.clients import Clients
from requite.protocols.majordomo.directory import Directory
from requite.protocols.majordomo.dispatch import Dispatcher
from requite.protocols.majordomo.parties import Client, PendingRequest, Service, Worker, size_of
from requite.protocols.majordomo.permissions import lacks_to_serve
from requite.protocols.majordomo.pushback import Pushback
from requite.protocols.majordomo.quotas import Usage
from requite.protocols.majordomo.wire import MMI_PREFIX, ClientRequest
from requite.protocols.majordomo.workforce import Workforce


class _Broker(MajordomoBroker):
    """A broker, of which some parts are broken."""

    dispatcher: type[Dispatcher] = Dispatcher
    workforce: type[Workforce] = Workforce
    pushback: type[Pushback] = Pushback
    directory: type[Directory] = Directory
    clients: type[Clients] = Clients
    authorizer_class: type[Authorizer] = Authorizer

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self._dispatcher.__class__ = self.dispatcher
        self._workforce.__class__ = self.workforce
        self._pushback.__class__ = self.pushback
        self._directory.__class__ = self.directory
        self._clients.__class__ = self.clients
        self.authorizer.__class__ = self.authorizer_class


# --- replies and principals (I16) -----------------------------------------------------------------
class AnswersTheLastCaller(_Broker):
    """Sends each reply to the client that called the service last."""

    class dispatcher(Dispatcher):
        def accept(self, pending: PendingRequest, now: float) -> None:
            self.__dict__.setdefault("last", {})[pending.service] = pending.client
            super().accept(pending, now)

        def _answer(self, pending: PendingRequest, body: list[bytes], now: float) -> None:
            last: Client = self.__dict__["last"][pending.service]
            before = len(self._out)
            super()._answer(pending, body, now)
            for place, effect in enumerate(self._out[before:], start=before):
                if isinstance(effect, Send) and last.dialect is pending.client.dialect:
                    self._out[place] = Send(last.peer, effect.message)


class NamesTheWorker(_Broker):
    """Sends REQUEST_OF with the principal of the worker."""

    class dispatcher(Dispatcher):
        def _dispatch(self, pending: PendingRequest, worker: Worker, now: float) -> None:
            pending.principal = worker.principal.name.encode()
            super()._dispatch(pending, worker, now)


class KeepsForeignCallIds(_Broker):
    """Forwards call ids of other principals."""

    class authorizer_class(Authorizer):
        def own_call_id(self, client: Client, number: int, call_id: bytes, now: float) -> bytes:
            super().own_call_id(client, number, call_id, now)
            return call_id


class BelievesEverybody(_Broker):
    """Makes requests for the user that a client names, if this user may make them."""

    class authorizer_class(Authorizer):
        def lacks_for(
            self,
            client: Client,
            user: bytes,
            service: bytes,
            body: Sequence[bytes],
            now: float,
        ) -> str:
            named = Principal(client.principal.name, Rights(act=("*",)))
            owner, client.principal = client.principal, named
            try:
                return super().lacks_for(client, user, service, body, now)
            finally:
                client.principal = owner


# --- rights to call and to serve (I17) ------------------------------------------------------------
class ForwardsWhatItShouldDeny(_Broker):
    """Accepts requests without the right."""

    class clients(Clients):
        def _deny(self, client: Client, command: ClientRequest, reason: str, now: float) -> None:
            if command.service.startswith(MMI_PREFIX):
                super()._deny(client, command, reason, now)
                return
            client.principal.allowed.add(command.service)
            self._request(client, command, now)


class ChecksTheFirstRequestOnly(_Broker):
    """Remembers what a connection could call, whatever becomes of its rights."""

    class clients(Clients):
        def _request(self, client: Client, command: ClientRequest, now: float) -> None:
            known = self.__dict__.setdefault("known", set())
            if (client, command.service) in known:
                client.principal.allowed.add(command.service)
            super()._request(client, command, now)
            if command.service in client.principal.allowed:
                known.add((client, command.service))


class RegistersBeforeItChecks(_Broker):
    """Registers all workers, and checks their rights when their heartbeats are due."""

    class workforce(Workforce):
        def _denial(self, *_given: Any) -> str:
            return ""

        def due(self, worker: Worker, now: float) -> None:
            if denied := lacks_to_serve(worker.principal, worker.service.name):
                self.dismiss(worker, denied, Cause.DENIED, now)
            else:
                super().due(worker, now)


class KeepsRevokedWorkers(_Broker):
    """Does not review workers when rights change."""

    class workforce(Workforce):
        def review(self, now: float) -> None:
            pass


class ReviewsOneByOne(_Broker):
    """Gives the requests of a disconnected worker to those that it has not reviewed yet."""

    class workforce(Workforce):
        def review(self, now: float) -> None:
            workers = [each for each in self._parties.values() if isinstance(each, Worker)]
            for worker in workers:
                if denied := lacks_to_serve(worker.principal, worker.service.name):
                    self.dismiss(worker, denied, Cause.DENIED, now)


class KeepsQueuedRequests(_Broker):
    """Does not review pending requests when rights change."""

    class authorizer_class(Authorizer):
        def lacks_still(self, _pending: PendingRequest, _now: float) -> str:
            return ""


# --- quotas (I18) ---------------------------------------------------------------------------------
class _Forgetful(dict[Principal, Usage]):
    def get(self, _principal: Any, _default: Any = None) -> Any:
        return None


class CountsPerConnection(_Broker):
    """Counts what each connection uses, in place of each principal."""

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self.authorizer.usages = _Forgetful()


class CountsRedeliveredTwice(_Broker):
    """Counts a request again when it is redelivered."""

    class dispatcher(Dispatcher):
        def redeliver(self, pending: PendingRequest, reason: str, now: float) -> None:
            if pending.client.usage is not None:
                pending.client.usage.ended -= 1
            super().redeliver(pending, reason, now)


class CountsForThoseWhoLeft(_Broker):
    """Keeps counting the requests of clients that have left."""

    class dispatcher(Dispatcher):
        def forget(self, client: Client, now: float) -> None:
            left = len(client.pending)
            super().forget(client, now)
            if client.usage is not None:
                client.usage.ended -= left


class KeepsJoinedPartials(_Broker):
    """Counts joined partial replies for ever."""

    class dispatcher(Dispatcher):
        def _settle(self, pending: PendingRequest, now: float) -> None:
            super()._settle(pending, now)
            if pending.client.usage is not None and pending.joined is not None:
                pending.client.usage.joined += size_of(pending.joined)


class CountsNamesForEver(_Broker):
    """Counts the services that a client has named even when they have workers, or are forgotten."""

    class directory(Directory):
        def _forget_namer(self, service: Service) -> None:
            namer = service.namer
            super()._forget_namer(service)
            if namer is not None and namer.usage is not None:
                namer.usage.named += 1


class ReadsOn(_Broker):
    """Accepts the rest of what it has read from a client beyond its quota."""

    class pushback(Pushback):
        def is_far_beyond(self, client: Client) -> bool:
            usage, client.usage = client.usage, None
            try:
                return super().is_far_beyond(client)
            finally:
                client.usage = usage


# --- changes of rights (I19) ----------------------------------------------------------------------
class EndsRequestsOfAll(_Broker):
    """Ends all pending requests when rights change."""

    class authorizer_class(Authorizer):
        def lacks_still(self, _pending: PendingRequest, _now: float) -> str:
            return "the rights have changed"


class ExpelsAllWorkers(_Broker):
    """Disconnects all workers when rights change."""

    class workforce(Workforce):
        def review(self, now: float) -> None:
            workers = [each for each in self._parties.values() if isinstance(each, Worker)]
            for worker in workers:
                name = worker.service.name.decode()
                why = f"{worker.principal} has no right to serve {name!r}"
                self.dismiss(worker, why, Cause.DENIED, now)
