"""Draw the knobs and the faults of a run from its seed.

A protocol declares its knobs as a table of choices, by name. Each knob has its own random stream,
which depends on the seed, the group of scenarios and the name: a new knob changes no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any, Final, TypeAlias, TypeVar

from requite.sim.kernel.faults import Fault, FaultKind
from requite.sim.kernel.knobs import Behaviour, RunKnobs, Scenario
from requite.sim.kernel.medium import Chunking, Shape
from requite.sim.kernel.process import Pace

Choice: TypeAlias = Callable[[Random], Any]
"""Draws the value of one knob."""

Choices: TypeAlias = Mapping[str, Choice]
"""The choices of knobs, by name."""

Spec = TypeVar("Spec")

_SHORTEST: Final = 0.1  # of outages, in units
_RESTART_S_MAX: Final = 3.0


# --- choices --------------------------------------------------------------------------------------
def one_of(*values: Any) -> Choice:
    """Return a choice between values; a value listed twice is twice as likely."""
    return lambda rng: rng.choice(values)


def between(low: float, high: float) -> Choice:
    """Return a choice of a number from `low` to `high`; an integer if both are integers."""
    if isinstance(low, int) and isinstance(high, int):
        return lambda rng: rng.randint(low, high)
    return lambda rng: rng.uniform(low, high)


def chance(probability: float) -> Choice:
    """Return a choice that is true with a probability."""
    return lambda rng: rng.random() < probability


def always(value: Any) -> Choice:
    """Return the choice of one value, which a scenario may replace."""
    return lambda _rng: value


# --- knobs that protocols share -------------------------------------------------------------------
WORK: Final[Choices] = {
    "service_s": one_of(0.0, 0.005, 0.05, 0.2),
    "timeout_s": one_of(0.5, 2.0, 5.0, 10.0),
    "endless_p": one_of(0.0, 0.2),
    "idempotent_p": one_of(0.5, 0.9, 1.0),
    "cancel_p": one_of(0.0, 0.05, 0.2),
    "big_p": one_of(0.0, 0.02, 0.1),
    "bursts_p": one_of(0.0, 0.3, 0.6),
    "follow_p": one_of(0.0, 0.2),
}
"""The rates and durations of calls."""

FAULTS: Final[Choices] = {
    "faults_per_s": between(0.05, 0.4),
    "outage_max": one_of(2.0, 5.0, 10.0),
}
"""The rate and the longest duration of faults."""

CALM: Final = {
    "network.jitter_s": 0.0,
    "network.spike_p": 0.0,
    "big_p": 0.0,
    "cancel_p": 0.0,
    "timeout_s": 60.0,
    "service_s": 0.005,
    "output_size_max": 64 << 20,
}
"""Knobs that a scenario fixes if each call must be answered at the first attempt."""

_NETWORK: Final[Choices] = {
    "latency_s": one_of(0.0001, 0.001, 0.01),
    "jitter_s": one_of(0.0, 1.0, 5.0),  # times the latency
    "spike_p": one_of(0.0, 0.01),
    "spike_s": one_of(0.1, 1.0),
    "chunking": one_of(*Chunking),
    "retransmit_s": one_of(2.0, 6.0),
    "keepalive_s": one_of(3.0, 6.0),
    "connect_timeout_s": one_of(0.5, 2.0),
    "buffer_size": one_of(2 << 10, 16 << 10, 256 << 10),
}


def weight(behaviour: Behaviour) -> Choice:
    """Return the choice of how often handlers show a behaviour."""
    match behaviour:
        case Behaviour.ECHO:
            return one_of(10, 30)
        case Behaviour.STREAM:
            return one_of(1, 8)
    return one_of(0, 0, 1, 2)


class Draw:
    """Draws the knobs of one run; `fixed` are those of its scenario."""

    def __init__(self, seed: int, group: str, scenario: Scenario) -> None:
        self._seed = seed
        self._group = group
        self._scenario = scenario

    def stream(self, knob: str) -> Random:
        """Return the random stream of one knob."""
        return Random(f"{self._seed}/{self._group}/{knob}")

    def one(self, knob: str, choice: Choice) -> Any:
        """Draw one knob, unless the scenario fixes it, or has a choice of its own."""
        if knob in self._scenario.fixed:
            return self._scenario.fixed[knob]
        return self.free(knob, self._scenario.choices.get(knob, choice))

    def free(self, knob: str, choice: Choice) -> Any:
        """Draw one knob, whatever the scenario fixes."""
        return choice(self.stream(knob))

    def knobs(self, choices: Choices) -> dict[str, Any]:
        """Draw knobs of the run; the scenario fixes some by their names."""
        return {knob: self.one(knob, choice) for knob, choice in choices.items()}

    def specs(self, role: str, count: Choice, choices: Choices) -> dict[str, dict[str, Any]]:
        """Draw the processes of a role: how many there are, and the knobs of each, by its name.

        The scenario fixes knobs of all of them as `ROLEs.KNOB`.
        """
        number = self.free(f"{role}s", count)
        return {f"{role}-{i + 1}": self.spec(role, i + 1, choices) for i in range(number)}

    def cast(
        self, kind: Callable[..., Spec], role: str, count: Choice, choices: Choices
    ) -> tuple[Spec, ...]:
        """Draw the processes of a role, as `specs` does, into records of a `kind`."""
        return tuple(
            kind(name, **knobs) for name, knobs in self.specs(role, count, choices).items()
        )

    def spec(self, role: str, number: int, choices: Choices) -> dict[str, Any]:
        """Draw the knobs of one process."""
        fixed = self._fixed(f"{role}s")
        return {
            knob: fixed[knob] if knob in fixed else self.free(f"{role}-{number}/{knob}", choice)
            for knob, choice in choices.items()
        }

    def weights(self, behaviours: tuple[Any, ...], of: Callable[[Any], Choice]) -> tuple[int, ...]:
        """Draw the weight of each behaviour."""
        return tuple(self.free(f"weights/{each}", of(each)) for each in behaviours)

    def calls(
        self, of: Callable[[Any], Choice] = weight, spike_unit_s: float = 1.0
    ) -> dict[str, Any]:
        """Draw the knobs of calls, faults and network that all protocols share."""
        behaviours = self._scenario.behaviours
        return {
            "faults": self.faults(),
            "behaviours": behaviours,
            "weights": self.weights(behaviours, of),
            "pace": self.pace(),
            "network": self.network(spike_unit_s),
        }

    def faults(self) -> tuple[FaultKind, ...]:
        """Return the faults of the scenario; of a swarm, a random subset."""
        faults = self._scenario.faults
        if self._scenario.swarm:
            share = self.free("faults", one_of(0.15, 0.4, 0.7))
            faults = tuple(each for each in faults if self.free(f"faults/{each}", chance(share)))
        fixed: tuple[FaultKind, ...] = self._scenario.fixed.get("faults", faults)
        return fixed

    def pace(self) -> Pace:
        """Draw the lateness of processes."""
        return Pace(
            self.free("pace/timer_late_s", one_of(0.0, 0.001, 0.02)),
            self.free("pace/flush_late_s", one_of(0.0, 0.0005, 0.005)),
        )

    def network(self, spike_unit_s: float = 1.0, others: Choices | None = None) -> Shape:
        """Draw the network; the scenario fixes knobs as `network.NAME`. `others` replace some."""
        drawn = {
            knob: self.free(f"network/{knob}", choice)
            for knob, choice in {**_NETWORK, **(others or {})}.items()
        }
        drawn["jitter_s"] *= drawn["latency_s"]
        drawn["spike_s"] *= spike_unit_s
        return Shape(**drawn | self._fixed("network"))

    def _fixed(self, thing: str) -> dict[str, Any]:
        prefix = f"{thing}."
        fixed = self._scenario.fixed.items()
        return {name.removeprefix(prefix): each for name, each in fixed if name.startswith(prefix)}


# --- faults -------------------------------------------------------------------------------------
def plan_faults(knobs: RunKnobs, luck: Callable[[str], Random]) -> Iterator[Fault]:
    """Draw the faults of the first phase: each kind at its rate, at random times.

    Each kind has its own random stream, so that another kind changes none of its faults.
    """
    for kind in knobs.faults:
        rng = luck(f"faults/{kind}")
        at_s = rng.expovariate(knobs.faults_per_s)
        while at_s < knobs.faulty_s:
            yield Fault(at_s, kind, _duration_s(knobs, rng, kind), rng.random())
            at_s += rng.expovariate(knobs.faults_per_s)


def _duration_s(knobs: RunKnobs, rng: Random, kind: FaultKind) -> float:
    if kind.startswith("crash"):
        return rng.uniform(0.0, _RESTART_S_MAX)
    if kind == "intruder":
        return rng.uniform(0.5, 5.0)
    # Log-uniform, so that durations fall on both sides of every timeout.
    units: float = _SHORTEST * (knobs.outage_max / _SHORTEST) ** rng.random()
    return units * knobs.outage_unit_s
