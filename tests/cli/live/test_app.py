"""The display of `requite top`, with real brokers and workers, and with kills."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.command import running_broker
from tests.cli.live.display import LARGE, SMALL, displayed
from tests.e2e.test_pair_broker import PairedBroker
from tests.support.live import BrokerProcess, Process

from requite.access.passwords import hash_password
from requite.cli.exit_codes import ExitCode
from requite.client import AsyncClient

pytestmark = pytest.mark.e2e

ROLES = ("primary", "backup")
NAMES = ("count", "echo", "fail", "slow")
SERVICES = [f"requite.examples:{name}" for name in NAMES]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A broker with a worker for each of four services."""
    with running_broker() as (_broker, url), serving(*SERVICES, url=url):
        yield url


@contextmanager
def serving(*targets: str, url: str) -> Iterator[Process]:
    """Run a worker, whose log is read, until the end of the block; yield it once it serves."""
    worker = Process("-m", "requite.cli", "worker", *targets, "--connect", url)
    try:
        assert worker.line().startswith("serving ")
        yield worker
    finally:
        worker.dispose()


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    """A broker that may be killed and started again at its port."""
    broker = BrokerProcess()
    yield broker
    broker.dispose()


@contextmanager
def restarted(broker: BrokerProcess) -> Iterator[None]:
    """Start a killed broker again at its address, until the end of the block."""
    again = BrokerProcess(bind=broker.endpoint)
    try:
        yield
    finally:
        again.dispose()


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_it_shows_services_and_their_rates(url: str, size: tuple[int, int]) -> None:
    async with displayed(url, size) as display, AsyncClient(url) as client:
        await display.until(lambda: all(display.row(name) for name in NAMES))
        title = next(line for line in display.lines if "SERVICE" in line)
        assert ("FAILED AS" in title, "P50" in title) == (size == LARGE, True)
        assert max(map(len, display.lines)) == size[0]
        calls = asyncio.create_task(keep_calling(client))
        try:
            await display.until(lambda: display.row("echo")[0:1] == display.names()[0:1])
            await display.until(lambda: re.search(r"failed [1-9]", display.text))
            assert "requests/s –" not in display.text
        finally:
            calls.cancel()


async def keep_calling(client: AsyncClient) -> None:
    """Call `echo` often, and `fail` seldom, until cancelled."""
    while True:
        calls = [client.call(b"x", service="echo") for _ in range(20)]
        calls.append(client.call(b"x", service="fail"))
        await asyncio.gather(*calls, return_exceptions=True)


async def test_keys_and_clicks_sort_and_reverse(url: str) -> None:
    async with displayed(url) as display:
        await display.until_shown("▼REQ/S")
        await display.until(lambda: len(display.names()) == 4)
        await display.click("SERVICE")
        assert "SERVICE▲" in display.text
        assert display.names() == sorted(NAMES)
        await display.press("r")
        assert display.names() == sorted(NAMES, reverse=True)
        await display.press("right")
        assert "▼WORKERS" in display.text
        await display.press("<")
        assert "SERVICE▲" in display.text
        await display.press("left")
        assert "▼FAIL/S" in display.text
        await display.click("WORKERS")
        await display.click("WORKERS")
        assert "▲WORKERS" in display.text


async def test_a_filter_is_set_and_removed(url: str) -> None:
    async with displayed(url) as display:
        await display.until(lambda: len(display.names()) == 4)
        await display.press("slash")
        await display.press("L", "o")
        assert display.names() == ["slow"]
        await display.press("enter")
        await display.until_shown("1 with “lo”")
        assert display.names() == ["slow"]
        await display.press("escape")
        assert len(display.names()) == 4
        assert "“lo”" not in display.text


async def test_the_cursor_stays_at_its_row(url: str) -> None:
    async with displayed(url) as display:
        await display.until(lambda: len(display.names()) == 4)
        table = display.app._service_table
        await display.click("SERVICE")
        assert table.cursor.seen.name == "count"
        await display.press("down", "j")
        assert table.cursor.seen.name == "fail"
        await display.press("r")
        assert table.cursor.seen.name == "fail"
        await display.press("end")
        assert table.cursor.seen.name == "count"
        await display.press("home", "pagedown", "pageup", "up")
        assert table.cursor.seen.name == "slow"


async def test_space_holds_the_display(url: str) -> None:
    async with displayed(url) as display:
        await display.until(lambda: len(display.names()) == 4)
        await display.press("space")
        assert "held" in display.text
        with serving("requite.examples:echo", url=url):
            polled = display.app._held
            await display.until(lambda: display.app._held is not polled)
            await display.until(
                lambda: sum(row.seen.idle for row in display.app._held.figures.services) == 5
            )
            assert display.row("echo")[1] == "1"
            await display.press("space")
            await display.until(lambda: display.row("echo")[1] == "2")
            assert "held" not in display.text


async def test_the_interval_has_steps(url: str) -> None:
    async with displayed(url, interval_s=1.0) as display:
        await display.press("plus")
        await display.until_shown("every 2 s")
        await display.press(*["plus"] * 9)
        assert display.poller.interval_s == 60
        await display.press(*["minus"] * 9)
        await display.until_shown("every 0.2 s")


async def test_help_opens_and_closes(url: str) -> None:
    async with displayed(url) as display:
        await display.press("question_mark")
        await display.until_shown("sort by another column", "Esc closes")
        assert max(map(len, display.lines)) == 80
        await display.press("escape")
        await display.until_shown("SERVICE")
        await display.press("question_mark")
        await display.press("q")
        await display.until_shown("SERVICE")


@pytest.mark.parametrize(("key", "code"), [("q", ExitCode.OK), ("ctrl+c", ExitCode.INTERRUPTED)])
async def test_keys_that_end_it(url: str, key: str, code: ExitCode) -> None:
    async with displayed(url) as display:
        await display.press(key)
        assert display.app.return_value == code


async def test_a_terminal_may_change_its_size(url: str) -> None:
    async with displayed(url) as display:
        await display.until(lambda: len(display.names()) == 4)
        await display.resize(200, 50)
        await display.until_shown("FAILED AS")
        await display.resize(30, 5)
        await display.until(lambda: len(display.lines) == 5)
        await display.resize(80, 24)
        await display.until(lambda: len(display.names()) == 4)


# --- a service ------------------------------------------------------------------------------------
async def test_a_service_shows_its_workers_and_a_killed_one_disappears(url: str) -> None:
    def workers() -> list[str]:
        return [line for line in display.lines[6:] if " idle " in line or " busy " in line]

    with serving("requite.examples:echo", url=url) as doomed:
        async with displayed(url) as display:
            await display.until(lambda: display.row("echo")[1:2] == ["2"])
            await display.click("echo", times=2)
            await display.until_shown("service echo", "WORKER▲", "HOLDS")
            await display.until(lambda: len(workers()) == 2)
            doomed.kill()
            await display.until(lambda: len(workers()) == 1)
            await display.press("escape")
            await display.until(lambda: display.row("echo")[1:2] == ["1"])


async def test_enter_opens_the_service_with_the_cursor(url: str) -> None:
    async with displayed(url, LARGE) as display, AsyncClient(url) as client:
        await display.until(lambda: len(display.names()) == 4)
        await display.click("SERVICE")
        await display.press("end", "enter")
        await display.until_shown("service slow", "ADDRESS")
        call = asyncio.create_task(client.call(b"20", service="slow", timeout=30))
        await display.until(lambda: any(" busy " in line for line in display.lines[5:]))
        call.cancel()
        await display.press("escape")
        await display.until_shown("▲")


# --- brokers that go away, or do not answer -------------------------------------------------------
async def test_a_restarted_broker_is_found_again(broker: BrokerProcess) -> None:
    with serving("requite.examples:echo", url=broker.url):
        async with displayed(broker.url, timeout_s=1.0) as display:
            await display.until(lambda: display.row("echo"))
            broker.kill()
            await display.until_shown("does not answer", "check that a broker listens")
            with restarted(broker):
                await display.until_shown("the broker was restarted", "serving")
                await display.until(lambda: display.row("echo")[1:2] == ["1"])


async def test_a_broker_that_is_not_there_is_waited_for(broker: BrokerProcess) -> None:
    broker.kill()
    async with displayed(broker.url, timeout_s=0.5) as display:
        await display.until_shown("connection refused", "asking again")
        with restarted(broker):
            await display.until_shown("serving")


async def test_a_draining_broker_says_so(broker: BrokerProcess) -> None:
    with serving("requite.examples:slow", url=broker.url):
        async with displayed(broker.url) as display, AsyncClient(broker.url) as client:
            call = asyncio.create_task(client.call(b"20", service="slow", timeout=30))
            await display.until(lambda: display.row("slow")[4:5] == ["1"])
            broker.send_signal(signal.SIGTERM)
            await display.until_shown("draining")
            call.cancel()


async def test_the_other_broker_of_a_pair_is_followed(tmp_path: Path) -> None:
    """The backup takes over because a client calls a service: questions to brokers do not count."""
    processes: list[Process] = []
    try:
        primary, backup = (PairedBroker(role, tmp_path, processes) for role in ROLES)
        places = [each.endpoint.removeprefix("tcp://") for each in (primary, backup)]
        url = f"mdp://{','.join(places)}"
        async with displayed(url, LARGE) as display, AsyncClient(url) as client:
            await display.until_shown("primary of a pair, active; the backup is passive")
            call = asyncio.create_task(client.call(b"", service="nobody"))
            primary.process.kill()
            await display.until_shown("the backup of the pair serves now", "pair, active")
            call.cancel()
    finally:
        for process in processes:
            process.dispose()


async def test_who_may_not_see_the_numbers_is_told_which_right_is_missing(tmp_path: Path) -> None:
    access = tmp_path / "access.toml"
    access.write_text(f'[user.ann]\npassword = "{hash_password("secret-word")}"\ncall = ["*"]\n')
    access.chmod(0o600)
    with running_broker("--access", str(access)) as (_broker, url):
        place = url.replace("mdp://", "mdp://ann:secret-word@")
        async with displayed(place) as display:
            await display.until_shown("admin", "stats")
            assert "secret-word" not in display.text
        async with displayed(url.replace("mdp://", "mdp://ann:wrong@")) as display:
            await display.until_shown("ann")


async def test_names_are_no_markup_and_bring_no_control_characters(url: str) -> None:
    """A client refuses to send control characters; one that overrides the direction is none."""
    name = "[red]\u202eab[/]"
    async with displayed(url) as display, AsyncClient(url) as client:
        call = asyncio.create_task(client.call(b"", service=name, timeout=30))
        await display.until_shown("[red]\\u202eab")
        assert all(line.isprintable() for line in display.lines)
        await display.click("[red]", times=2)
        await display.until_shown("service [red]\\u202eab[/]", "no workers")
        call.cancel()
