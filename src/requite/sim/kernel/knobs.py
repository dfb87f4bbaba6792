"""The parameters of a run, drawn from its seed; printed before the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from random import Random
from typing import Any, Final

from requite.shell.link import LinkLimits
from requite.sim.kernel.faults import LINKS, FaultKind, faults_of
from requite.sim.kernel.medium import Shape
from requite.sim.kernel.process import Pace


class Behaviour(StrEnum):
    """What a handler does; the request names it."""

    ECHO = "echo"  # reply after the service time
    STREAM = "stream"  # send some partial replies first
    FAIL = "fail"  # send a negative reply
    VOUCH = "vouch"  # take longer than the lease, and report progress
    HANG = "hang"  # never end, unless abandoned
    POISON = "poison"  # crash the worker's process


BEHAVIOURS: Final = (
    Behaviour.ECHO,
    Behaviour.STREAM,
    Behaviour.FAIL,
    Behaviour.HANG,
    Behaviour.POISON,
)
"""The behaviours of handlers in protocols without leases."""
ANSWERING: Final = (Behaviour.ECHO, Behaviour.STREAM)
"""The behaviours that answer."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A kind of run. `faults`: a run has all of these, with `swarm` a random subset.

    `fixed`: knobs with fixed values, by name: `network.NAME` of the network, `clients.NAME` of each
    client, and so on for the other roles. `choices`: other choices of knobs than those of its
    protocol.
    """

    name: str
    about: str
    faults: tuple[FaultKind, ...] = ()
    swarm: bool = False
    behaviours: tuple[Behaviour, ...] = BEHAVIOURS
    fixed: Mapping[str, Any] = field(default_factory=dict)
    choices: Mapping[str, Callable[[Random], Any]] = field(default_factory=dict)


def partitions(group: str) -> Scenario:
    """Return the scenario of a group with all faults of connections."""
    about = "the network is cut or congested; connections are reset or silently dropped"
    return Scenario(f"{group}-partitions", about, LINKS)


def usual(
    group: str,
    *roles: str,
    more: tuple[FaultKind, ...] = (),
    garbage: FaultKind = FaultKind.INTRUDER,
    drain_fixed: Mapping[str, Any] | None = None,
    choices: Mapping[str, Callable[[Random], Any]] | None = None,
) -> tuple[Scenario, ...]:
    """Return the scenarios of a group with garbage, with drains, and with all faults of a cast with
    these roles, and `more`. `drain_fixed` are the fixed knobs of the second, `choices` the choices
    of the last."""
    faults = faults_of(*roles, more=(*more, garbage))
    drains = tuple(fault for fault in faults if fault.startswith("drain"))
    return (
        Scenario(
            f"{group}-garbage", "intruders send garbage", (garbage,), fixed={"faults_per_s": 1.0}
        ),
        Scenario(
            f"{group}-drain",
            "processes of all roles drain and come back",
            drains,
            fixed=drain_fixed or {},
        ),
        Scenario(
            f"{group}-swarm",
            "a random subset of all faults",
            faults,
            swarm=True,
            choices=choices or {},
        ),
    )


@dataclass(frozen=True, slots=True)
class Printed:
    """Knobs that can be printed; those in `one_by_one` are lists, with a line for each item."""

    one_by_one = frozenset[str]()

    def lines(self) -> Iterator[str]:
        """Yield each knob as a line of text."""
        for knob in fields(self):
            value = getattr(self, knob.name)
            if knob.name in self.one_by_one:
                yield from (f"{knob.name[:-1]:<18} {_text(each)}" for each in value)
            else:
                yield f"{knob.name:<18} {_text(value)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKnobs(Printed):
    """The knobs of every run. The first phase takes `faulty_s` and makes `calls` calls.

    `faults_per_s` is the rate of each kind of fault; a fault lasts from 0.1 to `outage_max` units
    of `outage_unit_s`.
    """

    calls: int
    faulty_s: float
    faults: tuple[FaultKind, ...]
    faults_per_s: float
    outage_max: float

    @property
    def outage_unit_s(self) -> float:
        """The unit of outages: one second, or the heartbeat interval where there is one."""
        return 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CallKnobs(RunKnobs):
    """The knobs of runs whose clients make calls over a simulated network.

    Handlers draw from `behaviours` with `weights`. `lossless`: without faults, so that every call
    must be answered.
    """

    # calls
    behaviours: tuple[Behaviour, ...]
    weights: tuple[int, ...]
    service_s: float
    timeout_s: float
    endless_p: float = 0.0
    idempotent_p: float
    cancel_p: float
    big_p: float
    bursts_p: float
    follow_p: float
    lossless: bool = False
    # network and lateness
    network: Shape
    pace: Pace

    @property
    def ending_late_s(self) -> float:
        """How late a call may end after its deadline (I1)."""
        return self.pace.timer_late_s

    @property
    def runs_at_once(self) -> int | None:
        """How often a call runs at its first attempt if nothing goes wrong; None: any number."""
        return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineKnobs(CallKnobs):
    """The knobs of runs with engines behind simulated connections."""

    output_size_max: int
    partial_size_max: int = LinkLimits().partial_size_max
    burst: int = LinkLimits().burst

    @property
    def limits(self) -> LinkLimits:
        """The limits of connections."""
        return LinkLimits(
            handshake_timeout_s=3.0,
            linger_s=1.0,
            output_size_max=self.output_size_max,
            partial_size_max=self.partial_size_max,
            burst=self.burst,
        )


def values_of(knobs: RunKnobs) -> dict[str, Any]:
    """Return all knobs by name, for a run that has more of them."""
    return {knob.name: getattr(knobs, knob.name) for knob in fields(knobs)}


def _text(value: Any) -> str:
    if is_dataclass(value):
        settings = ((f.name, getattr(value, f.name)) for f in fields(value))
        return " ".join(f"{name}={_text(setting)}" for name, setting in settings)
    if type(value) is tuple:
        return " ".join(map(_text, value)) or "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
