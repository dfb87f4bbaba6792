"""Scenarios of a broker with an access file; draws their knobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final

from requite.sim.kernel.drawing import Choices, Draw, chance, one_of
from requite.sim.kernel.faults import FaultKind, faults_of
from requite.sim.kernel.knobs import ANSWERING, values_of
from requite.sim.majordomo import scenarios as majordomo_scenarios
from requite.sim.majordomo.knobs import Knobs
from requite.sim.majordomo.scenarios import MajordomoScenario
from requite.sim.rights.knobs import MemberSpec, RightsKnobs, UserSpec
from requite.sim.rights.operator import CHANGES
from requite.sim.rights.strangers import OWN

# Limits of the broker beside the quotas: reached by none. Who may not manage the broker gets other
# answers of `mmi.` than `OwnReply` expects.
_AMPLE: Final[dict[str, Any]] = {
    "services_max": 1000,
    "queue_max": 1000,
    "client_pending_max": 1000,
    "output_size_max": 64 << 20,
    "manage_p": 0.0,
}
_ALL: Final = faults_of("broker", "worker", "client", more=(FaultKind.INTRUDER, *CHANGES))

_LIST: Final = (
    MajordomoScenario("rights-calm", "principals with rights and quotas, and no faults"),
    MajordomoScenario(
        "rights-strangers",
        "strangers try what they have no right to, and exceed their quotas",
        (FaultKind.INTRUDER,),
        fixed={"faults_per_s": 1.0},
    ),
    MajordomoScenario(
        "rights-reload",
        "an operator revokes rights, removes users and lowers quotas, and restores them",
        CHANGES,
        fixed={"faults_per_s": 0.4},
    ),
    MajordomoScenario(
        "rights-reload-crashes",
        "rights change while workers and clients crash and connections break",
        (
            *CHANGES,
            FaultKind.CRASH_WORKER,
            FaultKind.CRASH_CLIENT,
            FaultKind.RESET,
            FaultKind.POWER_LOSS,
        ),
    ),
    MajordomoScenario(
        "rights-overload",
        "clients and strangers send more than their quotas allow, while quotas change",
        (FaultKind.INTRUDER, FaultKind.LOWER_QUOTA),
        behaviours=ANSWERING,
        fixed={"calls": 300, "service_s": 0.3, "timeout_s": 3.0, "bursts_p": 0.9},
    ),
    MajordomoScenario(
        "rights-old-dialects",
        "peers of MDP 0.1 and 0.2, which get no negative replies",
        (FaultKind.INTRUDER, *CHANGES),
        versions=("0.1", "0.2"),
    ),
    MajordomoScenario(
        "rights-swarm", "rights, strangers, and a random subset of all faults", _ALL, swarm=True
    ),
)
RIGHTS_SCENARIOS: Final = {scenario.name: scenario for scenario in _LIST}


# --- drawing --------------------------------------------------------------------------------------
_CLIENT_USERS: Final = ("shop", "office")
_WORKER_USERS: Final = ("staff", "crew")
_STRANGER: Final = "stranger"
_GUEST: Final = "guest"

_QUOTA: Final[Choices] = {
    "requests": one_of(0, 0, 3, 20),
    "bytes": one_of(0, 0, 4 << 10, 64 << 10),
    "requests_per_s": one_of(0, 0, 20),
}
_STRANGERS_QUOTA: Final[Choices] = {
    "requests": one_of(0, 2, 5),
    "bytes": one_of(0, 4 << 10),
    "requests_per_s": one_of(0, 5),
    "services": one_of(0, 2),
    "connections": one_of(0, 3),
}


def draw(seed: int, scenario: MajordomoScenario) -> RightsKnobs:
    """Draw the knobs of a run. The same seed and scenario always give the same knobs."""
    ample = replace(scenario, fixed={**_AMPLE, **scenario.fixed})
    knobs = majordomo_scenarios.draw(seed, ample)
    luck = Draw(seed, "rights", scenario)
    members = tuple(_draw_members(luck, knobs))
    return RightsKnobs(
        **values_of(knobs), members=members, users=tuple(_draw_users(luck, knobs, members))
    )


def _draw_members(luck: Draw, knobs: Knobs) -> Iterator[MemberSpec]:
    roles = ((knobs.clients, _CLIENT_USERS), (knobs.workers, _WORKER_USERS))
    for processes, users in roles:
        for process in processes:
            user = luck.free(f"{process.name}/user", one_of(*users))
            yield MemberSpec(process.name, user, _draw_features(luck, process.name))
    strangers = ((_STRANGER, True), (_STRANGER, True), (_GUEST, False), ("", True))
    for i, (user, has_credential) in enumerate(strangers, start=1):
        name = f"intruder-{i}"
        yield MemberSpec(name, user, _draw_features(luck, name), has_credential)


def _draw_features(luck: Draw, process: str) -> bool:
    drawn: bool = luck.free(f"{process}/features", chance(0.7))
    return drawn


def _draw_users(luck: Draw, knobs: Knobs, members: Sequence[MemberSpec]) -> Iterator[UserSpec]:
    user_of = {member.name: member.user for member in members}
    for name in _CLIENT_USERS:
        yield UserSpec(
            name,
            call=luck.free(f"{name}/call", lambda rng: _some(rng, knobs.services)),
            **_draw_quota(luck, name, _QUOTA),
        )
    for name in _WORKER_USERS:
        served = {worker.service for worker in knobs.workers if user_of[worker.name] == name}
        yield UserSpec(name, serve=tuple(sorted(served)))
    yield UserSpec(
        _STRANGER,
        call=(OWN, f"{OWN}.*", *luck.free("stranger/call", lambda rng: _few(rng, knobs.services))),
        serve=(OWN,),
        **_draw_quota(luck, _STRANGER, _STRANGERS_QUOTA),
    )
    yield UserSpec(_GUEST, anonymous=True)


def _draw_quota(luck: Draw, user: str, choices: Choices) -> dict[str, Any]:
    return {limit: luck.free(f"{user}/{limit}", choice) for limit, choice in choices.items()}


def _some(rng: Random, services: Sequence[str]) -> tuple[str, ...]:
    """Draw globs for at least one of the services, and sometimes for all names."""
    if rng.random() < 0.2:
        return ("*",)
    return tuple(rng.sample(services, rng.randint(1, len(services))))


def _few(rng: Random, services: Sequence[str]) -> tuple[str, ...]:
    """Draw one of the services, or none."""
    return tuple(rng.sample(services, rng.randint(0, 1)))
