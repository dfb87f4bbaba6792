"""The broker with an access file, and its clients and workers, which have credentials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from requite.access import Access
from requite.framing import Framing, SocketType, Zmtp
from requite.principal import Credential, Principal
from requite.protocols.majordomo.wire import FEATURES
from requite.sim.majordomo.parties import Broker, ClientProcess, Peer, Stage, WorkerProcess
from requite.sim.rights.knobs import RightsKnobs
from requite.sim.rights.watch import WatchedRights, asker_of

if TYPE_CHECKING:
    from requite.engine import Engine
    from requite.shell.host import Host
    from requite.sim.kernel.stream import SimStream
    from requite.sim.majordomo.knobs import ClientSpec
    from requite.sim.rights.operator import Operator


class RightsBroker(Broker):
    """A broker that knows its peers by the operator's access file."""

    observer = WatchedRights

    def __init__(self, stage: Stage, operator: Operator) -> None:
        super().__init__(stage)
        self._operator = operator

    def make_host(self) -> Host:
        """Return a host with a new broker, which has read the access file."""
        self._access = Access(self._operator.file)
        self._tell_rights()
        return super().make_host()

    def make_engine(self) -> Engine:
        """Return a new broker, which finds users by their names."""
        engine: Any = super().make_engine()
        engine.authorizer.principal_named = self._access.principal_named
        return cast("Engine", engine)

    def identify(self, credential: Credential | None, peer_name: str, _place: Any) -> Principal:
        """Return the owner of a connection."""
        return self._access.identify(credential, peer_name)

    def read_again(self) -> None:
        """Read the access file again, as `requite.access.guard.Guard` does."""
        if self.alive:
            self.later(0.0, self._read_again)

    def _read_again(self) -> None:
        self._access.load(self._operator.file)
        self._tell_rights()
        self.host.rights_changed()

    def _tell_rights(self) -> None:
        users = {user.name: user for user in self._access.users}
        self.stage.history.tell("rights_changed", users)


class Member(Peer):
    """A process with a credential; it announces features if its member does."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        knobs = self.stage.knobs
        assert isinstance(knobs, RightsKnobs)
        self.member = knobs.member(self.name)
        self.credential = self.member.credential

    def make_framing(self, stream: SimStream, place: Any, accepted: bool) -> Framing:
        """Return ZMTP of a DEALER, with or without features."""
        features = FEATURES if self.member.features else ()
        return Zmtp(SocketType.DEALER, identity=self.identity, features=features)


class RightsClient(ClientProcess, Member):
    """A client with a credential, and call ids of its own."""

    def __init__(self, spec: ClientSpec, stage: Stage) -> None:
        super().__init__(spec, stage)
        self.engine_options = {"origin": origin_of(self.name)}


class RightsWorker(WorkerProcess, Member):
    """A worker with a credential; it reports whose requests it gets."""

    def deliver(self, token: Any, what: Any) -> None:
        """Report the principal of a request, and start its handler."""
        history = self.stage.history
        if self.spec.version == "0.3":
            asker = asker_of(what.frames, history)
            history.tell("principal_named", self.member, what.principal, asker)
        super().deliver(token, what)


def origin_of(client: str) -> bytes:
    """Return the first half of a client's call ids. Strangers know it, as others may."""
    return client.encode()[-8:].rjust(8)
