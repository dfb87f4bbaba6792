"""A run of the Freelance pattern: its checkers, its tables and phases, and its scripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

from requite.protocols.freelance.wire import Model
from requite.sim.freelance.checkers import NeverInVain, PongAtOnce, SentOnce
from requite.sim.freelance.choices import AllAtOnce, Faithful, MovesOn, OneAtATime, OnlyTheLiving
from requite.sim.freelance.knobs import FlpClientSpec, FlpServerSpec, FreelanceKnobs
from requite.sim.freelance.parties import FlpCast, FlpParts
from requite.sim.freelance.scenarios import FLP_SCENARIOS, draw
from requite.sim.freelance.words import describe
from requite.sim.kernel.checkers.calls import (
    EndsOnce,
    HonestErrors,
    LosesNothing,
    OwnReply,
    PartialsInOrder,
)
from requite.sim.kernel.checkers.queues import Bounded, FairQueues
from requite.sim.kernel.checkers.robustness import NobodyNotices
from requite.sim.kernel.knobs import ANSWERING, Behaviour
from requite.sim.kernel.parties import PartiesSimulation, handler_s_max, reconnect_s
from requite.sim.kernel.script import QUIET, SEED, Form, Words, of_kind, read_call, settings, specs
from requite.sim.kernel.stage import RunStage


class FreelanceSimulation(PartiesSimulation):
    """A run with clients and servers, each client connected to all its servers."""

    knobs_type = FreelanceKnobs
    checkers = (
        EndsOnce,
        OwnReply,
        PartialsInOrder,
        FairQueues,
        Bounded,
        SentOnce,
        HonestErrors,
        NobodyNotices,
        NeverInVain,
        OnlyTheLiving,
        Faithful,
        MovesOn,
        OneAtATime,
        AllAtOnce,
        PongAtOnce,
        LosesNothing,
    )
    idle: ClassVar = {
        "client": ("held", "sent", "blocked"),
        "server": ("waiting", "running", "abandoned", "unread"),
    }
    connections: ClassVar = {"client": ("connections",), "server": ("clients",)}
    constant = frozenset({"._line", "._line[]"})  # the servers of the URL
    drains = ("client", "server")
    knobs: FreelanceKnobs
    cast: FlpCast

    def make_cast(self) -> FlpCast:
        """See `PartiesSimulation.make_cast`."""
        return FlpCast(RunStage.of(self, FlpParts))

    def describe(self, sender: str, message: Sequence[bytes]) -> str:
        """See `words.describe`."""
        return describe(self.knobs.model, message)

    @staticmethod
    def may_be_endless(client: Any, behaviour: Behaviour, idempotent: bool) -> bool:
        """Whether a call may have no deadline: it is resent until a handler answers."""
        return idempotent and behaviour in ANSWERING

    def settle_s(self) -> float:
        """Return the time in seconds in which everything must settle once faults have ended (I10).

        It is the sum of what may happen in sequence: a dead connection is detected and replaced, a
        silent server is given up and revived, deadlines pass, requests are retried, and one server
        works off all requests, some of them twice.
        """
        knobs = self.knobs
        deadlines_s = 1.5 * knobs.timeout_s
        tries_s = sum((client.attempt_s or 0.0) * client.attempts for client in knobs.clients)
        handler_s = handler_s_max(knobs.service_s, knobs.behaviours)
        work_s = (2 * knobs.calls + 100) * handler_s * len(knobs.servers)
        return reconnect_s(knobs.network) + deadlines_s + tries_s + 6 * knobs.ttl_s + work_s

    def expected(self, party: Any) -> Counter[Any]:
        """See `PartiesSimulation.expected`: `lanes` connections from a client to each server."""
        pairs = [(c, s) for c in self.knobs.clients for s in c.servers for _ in range(c.lanes)]
        if party.kind == "client":
            return Counter((s, s) for c, s in pairs if c.name == party.name)
        return Counter((None, c.name) for c, s in pairs if s == party.name)

    def disagreements(self) -> Iterator[str]:
        """Yield clients that do not count every connected server as live."""
        for client in self.cast.clients:
            state = client.hub.snapshot()
            if state.live != state.connections:
                yield f"{client.name} counts {state.live} of {state.connections} servers as live"

    def probes(self, _client: str) -> int:
        """Return the number of probe calls: two for each server."""
        return 2 * len(self.knobs.servers)


# --- scripts: see `requite.sim.kernel.script` -----------------------------------------------------
def _script_knobs(cast: Sequence[Words]) -> FreelanceKnobs:
    """Read the processes of a script.

    flp model=agent ping_s=2.0   the first line: a `Model`, and knobs by name
    client c s1 s2 attempts=3    a name, servers in order, and fields of `FlpClientSpec`
    server s1 capacity=1         a name, and fields of `FlpServerSpec`
    """
    [words] = of_kind(cast, "flp")
    given = {"ping_s": 2.0, "liveness": 3, **settings(words)}
    given["model"] = model = Model(given.get("model", Model.AGENT))
    return replace(
        draw(SEED, FLP_SCENARIOS["flp-calm"]),
        servers=specs(cast, "server", FlpServerSpec),
        clients=tuple(_client(words, model) for words in of_kind(cast, "client")),
        **QUIET | given,
    )


def _client(words: Words, model: Model) -> FlpClientSpec:
    name, *rest = words
    servers = tuple(word for word in rest if "=" not in word)
    attempt_s = 1.0 if model is Model.FAILOVER else None
    more = settings(word for word in rest if "=" in word)
    return FlpClientSpec(name, servers, **{"attempt_s": attempt_s} | more)


SCRIPT: Final = Form(FreelanceSimulation, _script_knobs, read_call)
