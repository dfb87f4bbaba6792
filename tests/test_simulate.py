"""`requite.testing.simulate`: tests of services under faults, with virtual time."""

from __future__ import annotations

import asyncio
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

import requite
from requite.errors import ConfigurationError
from requite.shell import clock
from requite.testing import SimulatedWorld, SimulationFailed, simulate
from requite.testing.simulated_world import FAULTS
from requite.testing.simulation import SEED

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "test-a-service.md"


class Ledger:
    """The content of a database: it survives the workers' restarts."""

    def __init__(self) -> None:
        self.total = 0
        self.keys: set[bytes] = set()


def pay(ledger: Ledger, *, careful: bool = True) -> requite.worker.Service:
    """Return a service that books payments; if `careful`, it books each idempotency key once."""

    @requite.service("pay")
    async def serve(request: requite.Request) -> bytes:
        await asyncio.sleep(0.05)
        if careful and request.idempotency_key in ledger.keys:
            return b"paid before"
        ledger.keys.add(request.idempotency_key)
        ledger.total += int(request.body)
        await asyncio.sleep(0.01)
        return b"paid"

    return serve


async def pay_all(world: SimulatedWorld, count: int = 20) -> None:
    """Make `count` payments of 10, one after the other."""
    async with world.client("pay") as client:
        for number in range(count):
            world.note(f"pays {number}")
            await client.call(b"10", idempotency_key=b"%d" % number, timeout=120)


@simulate(seeds=5, faults=FAULTS, faults_per_s=0.1)
async def test_a_careful_service_books_each_payment_once(world: SimulatedWorld) -> None:
    ledger = Ledger()
    world.broker()
    world.worker(pay(ledger), count=2)
    await pay_all(world)
    await world.heal()
    await pay_all(world)
    assert ledger.total == 200


@simulate(seeds=5, faults=["kill broker", "freeze broker", "kill worker"])
async def test_a_pair_of_brokers_serves(world: SimulatedWorld) -> None:
    ledger = Ledger()
    world.pair()
    world.worker(pay(ledger), count=2)
    await pay_all(world)
    assert ledger.total == 200


async def _careless(world: SimulatedWorld) -> None:
    ledger = Ledger()
    world.broker()
    world.worker(pay(ledger, careful=False), count=2)
    await pay_all(world)
    assert ledger.total == 200


def failure_of(test: Callable[[], None]) -> BaseException:
    """Run a test that must fail, and return its exception."""
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - each test looks at its type
        test()
    return caught.value


def test_a_careless_service_is_found_with_a_minimal_set_of_faults(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(SEED, raising=False)
    test = simulate(seeds=100, faults=["kill worker", "reset connection"])(_careless)
    error = failure_of(test)
    assert isinstance(error, AssertionError)
    first, needed, *events, repeat = error.__notes__
    found = re.match(r"seed (\d+), after \d", first)
    assert found
    assert (counts := re.match(r"faults that it needs: (\d+) of (\d+)", needed))
    assert 0 < int(counts[1]) < int(counts[2])
    assert sum(line.startswith("  at ") for line in events) == int(counts[1])
    assert any(line.endswith("pays 3") for line in events)
    command = f"{SEED}={found[1]} python -m pytest tests/test_simulate.py"
    assert repeat.startswith(f"repeat it: {command}")

    monkeypatch.setenv(SEED, found[1])
    assert failure_of(test).__notes__ == error.__notes__


def events_of(seed: int) -> list[str]:
    """Return the events in the report of a failing run with this seed."""

    async def fails(world: SimulatedWorld) -> None:
        world.broker()
        world.worker(pay(Ledger()))
        await pay_all(world)
        raise ZeroDivisionError

    return failure_of(simulate(seeds=[seed])(fails)).__notes__[2:-1]


def test_a_seed_determines_the_run() -> None:
    assert events_of(3) == events_of(3) != events_of(4)


@simulate(seeds=2)
async def test_fixtures_are_passed_after_the_world(world: SimulatedWorld, tmp_path: Path) -> None:
    assert world.seed in (0, 1)
    assert tmp_path.name.startswith("test_fixtures")


class TestMethods:
    @simulate(seeds=2)
    async def test_methods_work(self, world: SimulatedWorld, tmp_path: Path) -> None:
        assert isinstance(self, TestMethods)
        assert world.now < 1.0
        assert tmp_path.name.startswith("test_methods_work")


@simulate(seeds=1)
async def test_virtual_time_passes_without_waiting(world: SimulatedWorld) -> None:
    before = clock.now()
    await asyncio.sleep(3000.0)
    assert 3000.0 <= clock.now() - before < 3001.0
    assert 3000.0 <= world.now < 3001.0


def test_clock_and_randomness_are_restored() -> None:
    before, state = clock.now, random.getstate()
    test_virtual_time_passes_without_waiting()
    assert clock.now is before
    assert random.getstate() == state


@simulate(seeds=3)
async def test_transports_without_a_broker(world: SimulatedWorld) -> None:
    world.worker(pay(Ledger()), url="", bind="sp+tcp://*:7000", count=2)
    places = "sp+tcp://worker-1:7000,worker-2:7000"
    async with requite.AsyncClient(places) as client:
        assert (await client.call(b"10")).body == b"paid"


@simulate(seeds=3)
async def test_handlers_in_threads(world: SimulatedWorld) -> None:
    @requite.service("double")
    def double(request: requite.Request) -> bytes:
        return request.body * 2

    world.broker()
    world.worker(double)
    async with world.client("double") as client:
        assert (await client.call(b"ab")).body == b"abab"


@simulate(seeds=3)
async def test_a_restarted_worker_has_lost_its_memory(world: SimulatedWorld) -> None:
    def counting() -> requite.worker.Service:
        count = 0

        @requite.service("count")
        async def serve(_request: requite.Request) -> bytes:
            nonlocal count
            count += 1
            return b"%d" % count

        return serve

    world.broker()
    world.worker(counting)
    async with world.client("count") as client:
        assert [(await client.call(b"")).body for _ in range(2)] == [b"1", b"2"]
        world.kill("worker-1")
        world.start("worker-1")
        assert (await client.call(b"")).body == b"1"


@simulate(seeds=3)
async def test_a_test_can_inject_faults_itself(world: SimulatedWorld) -> None:
    ledger = Ledger()
    world.broker()
    world.worker(pay(ledger))
    async with world.client("pay") as client:
        await client.call(b"10", idempotency_key=b"1")
        for number, inject in enumerate((world.freeze, world.kill, world.drain)):
            inject("worker-1")
            with pytest.raises(requite.CallError):
                await client.call(b"10", idempotency_key=b"x%d" % number, timeout=2.0)
            world.thaw("worker-1")
            world.start("worker-1")
        world.partition("test", "broker")
        with pytest.raises(requite.CallTimeout):
            await client.call(b"10", timeout=2.0)
        await world.heal()
        assert (await client.call(b"10", idempotency_key=b"1", timeout=60)).body == b"paid before"


@simulate(seeds=1)
async def test_other_programs(world: SimulatedWorld) -> None:
    said: list[str] = []

    async def main() -> None:
        await asyncio.sleep(1.0)
        said.append("done")

    world.program("other", main)
    await asyncio.sleep(2.0)
    assert said == ["done"]


# --- failures and invalid settings ----------------------------------------------------------------
async def _endless(_world: SimulatedWorld) -> None:
    await asyncio.get_running_loop().create_future()


async def _busy(_world: SimulatedWorld) -> None:
    loop = asyncio.get_running_loop()

    def again() -> None:
        loop.call_soon(again)

    again()
    await loop.create_future()


async def _program_fails(world: SimulatedWorld) -> None:
    async def main() -> None:
        raise ValueError("it cannot")

    world.program("other", main)
    await asyncio.sleep(10.0)


async def _callback_fails(_world: SimulatedWorld) -> None:
    asyncio.get_running_loop().call_soon(lambda: 1 // 0)
    await asyncio.sleep(10.0)


async def _without_world() -> None:
    """Lack the argument for the simulated world."""


async def _same_name_twice(world: SimulatedWorld) -> None:
    world.broker()
    world.broker()


async def _keeps_a_journal(world: SimulatedWorld) -> None:
    world.broker(journal="journal")


async def _is_durable(world: SimulatedWorld) -> None:
    world.broker(titanic="requests")


async def _no_workers(world: SimulatedWorld) -> None:
    world.worker(pay(Ledger()), count=0)


async def _stores_dedup_in_a_folder(world: SimulatedWorld) -> None:
    @requite.service("echo", idempotent=requite.Dedup("folder"))
    async def echo(request: requite.Request) -> bytes:
        return request.body

    world.broker()
    world.worker(echo)
    await asyncio.sleep(10.0)


async def _kills_an_unknown_process(world: SimulatedWorld) -> None:
    world.kill("nobody")


@pytest.mark.parametrize(
    ("test", "error", "text"),
    [
        (_endless, SimulationFailed, "has not ended after 100 s of virtual time"),
        (_program_fails, SimulationFailed, "the process other failed:"),
        (_callback_fails, SimulationFailed, "ZeroDivisionError"),
        (_same_name_twice, ConfigurationError, "'broker' is already in use"),
        (_keeps_a_journal, ConfigurationError, "`journal` is set: it writes files from a thread"),
        (_is_durable, ConfigurationError, "`titanic` is set: it writes files from a thread"),
        (_no_workers, ConfigurationError, "at least one worker is needed, not 0"),
        (_stores_dedup_in_a_folder, SimulationFailed, "`Dedup` of 'echo' has a folder"),
        (
            _kills_an_unknown_process,
            ConfigurationError,
            "no process 'nobody'; the processes are test",
        ),
    ],
)
def test_errors_are_reported(test: Any, error: type[BaseException], text: str) -> None:
    failure = failure_of(simulate(seeds=1, limit_s=100.0)(test))
    assert type(failure) is error
    assert text in str(failure)


def test_an_endless_loop_of_callbacks_is_reported() -> None:
    failure = failure_of(simulate(seeds=1, limit_s=1.0)(_busy))
    assert "has not ended" in str(failure) or "does not end" in str(failure)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: simulate(faults=["kill everybody"]),
            "unknown fault 'kill everybody'; the faults are",
        ),
        (
            lambda: simulate(faults="kill worker"),
            "`faults` must be a list of names, not the text",
        ),
        (lambda: simulate(seeds=0), "at least one seed is needed, not 0"),
        (lambda: simulate(faults_per_s=0), "faults_per_s must be positive, not 0"),
        (lambda: simulate(limit_s=-1), "limit_s must be positive, not -1"),
        (lambda: simulate()(lambda _world: None), "is not an `async def` function"),
        (
            lambda: simulate()(_without_world),
            "_without_world needs an argument: the ",
        ),
    ],
)
def test_invalid_settings_are_rejected(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(text)):
        make()


def test_an_invalid_seed_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEED, "seven")
    with pytest.raises(ConfigurationError, match="REQUITE_SEED must be a whole number"):
        simulate()(_endless)()


# --- the page -------------------------------------------------------------------------------------
def _blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)


def test_the_example_of_the_page_finds_the_bug_and_its_fix_works(tmp_path: Path) -> None:
    careless, fix = _blocks()[:2]
    fixed = indent(fix, "    ")
    before = re.search(r"^    async def pay\(.*?^        return b\"paid\"\n", careless, re.M | re.S)
    assert before
    for name, text in (("payments", careless), ("careful", careless.replace(before[0], fixed))):
        (tmp_path / f"test_{name}.py").write_text(text, "utf-8")
    out = _pytest(tmp_path, "test_payments.py", 1)
    page = PAGE.read_text("utf-8")
    shown = re.search(r"^```console\n\$ python -m pytest.*?\n(.*?)^```", page, re.M | re.S)
    assert shown
    for line in shown[1].splitlines():
        assert line == "…" or _without_times(line) in _without_times(out), line
    assert "1 passed" in _pytest(tmp_path, "test_careful.py", 0)


def _without_times(text: str) -> str:
    return re.sub(r"\d+\.\d+", "", text)


def _pytest(folder: Path, file: str, code: int) -> str:
    environment = {k: v for k, v in os.environ.items() if k not in (SEED, "PYTEST_CURRENT_TEST")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_the_page_lists_all_faults() -> None:
    page = PAGE.read_text("utf-8")
    assert not [fault for fault in FAULTS if f"`{fault}`" not in page]
