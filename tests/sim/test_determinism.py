"""A run is a function of its seed, in any process. Options and results can be pickled."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence

import pytest

from requite.sim import Options, run
from requite.sim.scenarios import SCENARIOS

_SWARMS = ("swarm", "sp-swarm", "shells-swarm")
_DIGESTS = f"""
from requite.sim import run
print(*(run(seed, name).digest for name in {_SWARMS} for seed in (3, 4, 5)))
"""


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_seed_repeats_its_run_exactly(scenario: str) -> None:
    options = Options(transcript=True)
    first, second = run(7, scenario, options), run(7, scenario, options)
    assert first == second
    assert first.transcript
    assert first.calls
    assert not first.violations, "\n".join(map(str, first.violations))


@pytest.mark.parametrize(
    "scenario",
    [
        "swarm",
        "sp-swarm",
        "pair-swarm",
        "pair-all-at-once",
        "pool-swarm",
        "pool-manager",
        "shells-swarm",
    ],
)
def test_a_transcript_does_not_change_the_run(scenario: str) -> None:
    with_it, without = run(7, scenario, Options(transcript=True)), run(7, scenario)
    assert with_it.digest == without.digest


@pytest.mark.parametrize(
    ("scenario", "seeds"),
    [
        ("swarm", range(5)),
        ("sp-swarm", range(5)),
        ("pair-swarm", (7, 8)),
        ("pair-all-at-once", (7, 8)),
        ("pool-swarm", (7, 8)),
        ("pool-manager", (7, 8)),
        ("shells-swarm", (7, 8)),
    ],
)
def test_other_seeds_give_other_runs(scenario: str, seeds: Sequence[int]) -> None:
    assert len({run(seed, scenario).digest for seed in seeds}) == len(seeds)


def test_digests_do_not_depend_on_the_hash_seed() -> None:
    digests = {_run_in_process(hash_seed) for hash_seed in ("0", "1", "4242")}
    here = [
        run(seed, name).digest
        for name in ("swarm", "sp-swarm", "shells-swarm")
        for seed in (3, 4, 5)
    ]
    assert digests == {" ".join(here)}


def _run_in_process(hash_seed: str) -> str:
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", _DIGESTS],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_options_and_results_can_be_pickled() -> None:
    options = Options(knobs={"calls": 10})
    result = run(1, "calm", pickle.loads(pickle.dumps(options)))
    assert result.calls == 10 + len(_probes(result.knobs))
    assert pickle.loads(pickle.dumps(result)) == result


def _probes(knobs: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return the calls of the second phase: each client calls each service."""
    services = next(line.split()[1:] for line in knobs if line.startswith("services "))
    clients = [line for line in knobs if line.startswith("client ")]
    return [(client, service) for client in clients for service in services]
