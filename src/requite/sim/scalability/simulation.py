"""A run of the scalability protocols: its tables and phases, and its scripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Final

from requite.errors import CallTimeout
from requite.framing.sp import SpStream
from requite.protocols.scalability.wire import REP, REQ
from requite.sim.kernel.knobs import ANSWERING, Behaviour
from requite.sim.kernel.parties import PROBE_S, PartiesSimulation, handler_s_max, reconnect_s
from requite.sim.kernel.script import QUIET, SEED, Form, Words, of_kind, read_call, settings, specs
from requite.sim.kernel.stage import RunStage
from requite.sim.kernel.stranger import Stranger
from requite.sim.kernel.workload import CallPlan, plain_call
from requite.sim.scalability.checkers import SP_CHECKERS
from requite.sim.scalability.knobs import DeviceSpec, ScalabilityKnobs, SpClientSpec, SpWorkerSpec
from requite.sim.scalability.parties import SpCast, SpParts, place_of
from requite.sim.scalability.scenarios import SP_SCENARIOS, draw
from requite.sim.scalability.stack import describe, show
from requite.sim.scalability.topology import FRONT, Edge, Shape


class ScalabilitySimulation(PartiesSimulation):
    """A run with clients, devices and workers in any topology."""

    knobs_type = ScalabilityKnobs
    checkers = SP_CHECKERS
    idle: ClassVar = {
        "client": ("held", "sent", "blocked"),
        "device": ("held", "front_blocked", "front_unread", "back_blocked"),
        "worker": ("waiting", "running", "abandoned", "blocked", "unread"),
    }
    connections: ClassVar = {
        "client": ("channels",),
        "device": ("front", "back"),
        "worker": ("channels",),
    }
    drains = ("client", "device", "worker")
    knobs: ScalabilityKnobs
    cast: SpCast
    _handed_on = 0

    def make_cast(self) -> SpCast:
        """See `PartiesSimulation.make_cast`."""
        return SpCast(RunStage.of(self, SpParts))

    def describe(self, _sender: str, message: Sequence[bytes]) -> str:
        """See `stack.describe`."""
        return describe(message)

    def show(self, frames: Sequence[bytes]) -> str:
        """See `stack.show`."""
        return show(frames)

    @staticmethod
    def may_be_endless(client: SpClientSpec, behaviour: Behaviour, idempotent: bool) -> bool:
        """Whether a call may have no deadline: its client must resend it until it is answered."""
        return client.is_persistent and idempotent and behaviour in ANSWERING

    def settle_s(self) -> float:
        """Return the time in seconds in which everything must settle once faults have ended (I10).

        It is the sum of what may happen in sequence: a dead connection is detected and replaced,
        deadlines pass, calls without a deadline are resent a few times, and one worker works off
        all requests, some of them twice.
        """
        knobs = self.knobs
        resend_s = max((client.resend_s or 0.0) for client in knobs.clients)
        work_s = (2 * knobs.calls + 100) * handler_s_max(knobs.service_s, knobs.behaviours)
        return reconnect_s(knobs.network) + 1.5 * knobs.timeout_s + 5 * resend_s + work_s

    def unsettled(self) -> list[str]:
        """Return what has not settled yet; no request may loop any more."""
        before, self._handed_on = self._handed_on, sum(d.hub.handed_on for d in self.cast.devices)
        return super().unsettled() or ["requests still loop"] * (before != self._handed_on)

    def expected(self, party: Any) -> Counter[Any]:
        """See `PartiesSimulation.expected`."""
        edges, name = self.knobs.edges, party.name
        below = Counter((place_of(edge, False), edge.lower) for edge in edges if edge.upper == name)
        return below + Counter(
            (place_of(edge, True), edge.upper) for edge in edges if edge.lower == name
        )

    def probes(self, client: str) -> int:
        """Return the number of probe calls: two for each channel of a client."""
        return 2 * sum(edge.upper == client for edge in self.knobs.edges)

    def probe(self, client: str, number: int) -> CallPlan:
        """See `PartiesSimulation.probe`."""
        return plain_call(client, number, PROBE_S, service_s=min(self.knobs.service_s, 0.001))

    def may_be_lost(self, plan: CallPlan, outcome: object) -> bool:
        """Whether a loop may have dropped the request, and its client does not resend."""
        spec = self.cast.client(plan.client).spec
        in_loop = self.knobs.shape == Shape.LOOP
        return in_loop and not spec.is_persistent and isinstance(outcome, CallTimeout)


# --- scripts: see `requite.sim.kernel.script` -----------------------------------------------------
_TAG_DIGITS: Final = 8


def _script_knobs(cast: Sequence[Words]) -> ScalabilityKnobs:
    """Read the processes of a script.

    sp hops=8 in_band=True                   the first line; knobs by name
    client c resend_s=1.0 first_id=823       a name, and fields of `SpClientSpec`
    device d first_id=299                    a name, and fields of `DeviceSpec`
    worker w capacity=1                      a name, and fields of `SpWorkerSpec`
    connect c > d priority=2                 c dials d, and sends it requests
    connect d < w                            w dials d, and gets requests from it
    stranger s d:front                       dials a port: as a client at the front, ...
    stranger t d:back-1-1                    ... as a worker at the back, by priority and weight
    0.4 s says 0000012b 80000337 hello       tags in hex, and a body, if any
    """
    knobs: dict[str, Any] = {"hops": 8, "hold_s": 30.0, "in_band": False, "at_once": False}
    given = settings(word for words in of_kind(cast, "sp") for word in words)
    return replace(
        draw(SEED, SP_SCENARIOS["sp-calm"]),
        clients=specs(cast, "client", SpClientSpec, first_id=1),
        devices=specs(cast, "device", DeviceSpec, first_id=1),
        workers=specs(cast, "worker", SpWorkerSpec, first_id=1),
        edges=tuple(map(_edge, of_kind(cast, "connect"))),
        **QUIET | knobs | given,
    )


def _edge(words: Words) -> Edge:
    upper, way, lower, *rest = words
    return Edge(upper, lower, way == ">", **settings(rest))


def _strangers(cast: Sequence[Words], stage: Any) -> list[Stranger]:
    found = []
    for name, address in of_kind(cast, "stranger"):
        own, peer = (REQ, REP) if address.endswith(f":{FRONT}") else (REP, REQ)
        framing = partial(SpStream, own, peer, in_band=stage.knobs.in_band)
        found.append(Stranger(name, address, stage, framing, _read_message))
    return found


def _read_message(words: str) -> list[bytes]:
    """Read a message: words of eight hex digits are tags, the rest is the body."""
    return [b"".join(map(_piece, words.split()))]


def _piece(word: str) -> bytes:
    is_tag = len(word) == _TAG_DIGITS and all(digit in "0123456789abcdef" for digit in word)
    return bytes.fromhex(word) if is_tag else word.encode()


SCRIPT: Final = Form(ScalabilitySimulation, _script_knobs, read_call, _strangers)
