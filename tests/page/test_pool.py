"""The page of a pool: a real manager at a broker of MDP, real workers, and a headless Chromium."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from tests.page.test_page import LIVE, MAIN, WIDTH
from tests.pool.brokered import BrokerTestbed, answering_worker, broker_process, start_broker
from tests.pool.live import WAIT_S, until
from tests.pool.test_brokered_command import CommandTestbed
from tests.support.browser import CHROMIUM, Page
from tests.support.live import Process
from tests.support.live import eventually as sync_eventually

from requite.page.groups import FLAWS_MAX, GROUPS_MAX, Groups, GroupsView, PoolSnapshot, view_of
from requite.page.pool import PoolPage
from requite.pool.drivers.noop import NoopDriver
from requite.pool.manager import PoolManager
from requite.pool.manager.carrier import State
from requite.pool.recorder import GroupEvent, GroupStep

pytestmark = pytest.mark.e2e

EVIL: Final = "<img src=x onerror=alert(1)>&\"'</th><script>document.title=1</script>"
KEYS: Final = "[...document.querySelectorAll('#groups tbody th')].map(each => each.textContent)"
HISTORY: Final = (
    "[...document.querySelectorAll('#history tbody tr')]"
    ".map(each => [...each.cells].slice(1).map(cell => cell.textContent).join(' | '))"
)
HTML: Final = {"Accept": "text/html"}


@pytest.fixture
async def testbed(tmp_path: Path) -> AsyncIterator[BrokerTestbed]:
    """A broker in this event loop with a testbed; all workers are killed afterwards."""
    async with AsyncExitStack() as stack:
        testbed = BrokerTestbed(await start_broker(stack), tmp_path, stack)
        stack.push_async_callback(testbed.clear)
        yield testbed


async def shown(testbed: BrokerTestbed, **more: Any) -> PoolManager:
    """Start a manager that has a page; return it once it is active."""
    manager = await testbed.manager(page=PoolPage, **more)
    await until(lambda: manager.state is State.ACTIVE, "an active manager")
    return manager


# --- with workers, in a browser -------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.skipif(not CHROMIUM, reason="there is no chromium")
async def test_a_killed_worker_and_why_it_came_back_are_seen(
    page: Page, testbed: BrokerTestbed
) -> None:
    manager = await shown(testbed)
    await page.open(manager.url)
    await page.until(f"{LIVE} && {MAIN}.includes('No group yet')")
    await page.run("window.sameDocument = true")
    first = await answering_worker(await testbed.client(EVIL))
    await page.until(f"{KEYS}.length == 1 && {HISTORY}.some(each => each.includes('| runs |'))")
    assert await page.run(KEYS) == [EVIL]
    [record] = testbed.workers()
    os.killpg(record.pid, signal.SIGKILL)
    lost = f"{EVIL} | has exited | its workers have exited without an order"
    await page.until(f"{HISTORY}.includes({lost!r})")
    await page.until(f"{HISTORY}[0].endsWith('| runs | 1 worker')")
    history = await page.run(HISTORY)
    again = f"{EVIL} | is started | its workers have exited"
    restarted = next(n for n, each in enumerate(history) if each.startswith(again))
    assert restarted < history.index(lost), "the newest is the first"
    assert history[-1] == f"{EVIL} | is started | the broker has requests for it"
    assert await answering_worker(await testbed.client(EVIL)) != first
    await page.until("document.querySelector('#groups td[data-name=running]').innerText == 'yes'")

    assert await page.run("window.sameDocument && document.title") == "requite pool core"
    assert await page.run("document.images.length + document.scripts.length") == 1
    await page.press("/")
    assert await page.run("document.activeElement.id") == "q"
    await page.write("none")
    await page.until(f"{MAIN}.includes('No group has a key like that')")
    assert await page.run("location.search") == "?q=none"
    for width in (390, 320):
        for dark in (False, True):
            await page.open(manager.url, width, dark=dark)
            await page.until(f"{LIVE} && {KEYS}.length == 1")
            assert await page.run(WIDTH) <= width
            paper = await page.run("getComputedStyle(document.body).backgroundColor")
            assert paper == ("rgb(20, 23, 26)" if dark else "rgb(255, 255, 255)")
    assert all(url.startswith(f"{manager.url}/") for url in page.requested)


# --- what it answers ------------------------------------------------------------------------------
async def test_it_is_read_without_javascript(testbed: BrokerTestbed) -> None:
    manager = await shown(testbed, driver=NoopDriver())
    async with httpx.AsyncClient(base_url=manager.url, headers=HTML, timeout=WAIT_S) as client:
        for key in (EVIL, "other"):
            assert (await client.post("/require", json={"key": key})).status_code == 202

        def is_started() -> bool:
            return {each.key for each in manager.history} == {EVIL, "other"}

        await until(is_started, "orders to the driver")
        answer = await client.get("/", params={"q": "IMG"})
        head = await client.head("/events")
    assert (answer.status_code, head.status_code, head.text) == (200, 200, "")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'")
    assert "<script>document" not in answer.text
    assert "<img" not in answer.text
    assert answer.text.count("<bdi>&lt;img src=x onerror=alert(1)&gt;") >= 2  # group and history
    assert "other</bdi>" not in answer.text
    assert "an operator required it" in answer.text
    assert 'http-equiv="refresh"' in answer.text


@pytest.mark.parametrize(
    ("path", "fields", "status", "says"),
    [
        ("/", {"Host": "evil.example"}, 421, "http.hosts"),
        ("/", {"Origin": "https://evil.example"}, 403, "evil.example"),
        ("/events", {"Host": "evil.example"}, 421, "http.hosts"),
        ("/events", {"Origin": "https://evil.example"}, 403, "evil.example"),
        ("/events", {"Origin": "null"}, 403, "null"),
        ("/none", HTML, 404, "There is no such page"),
        ("/none", {"Accept": "*/*"}, 404, "404: Not Found"),
        ("/page.js", {}, 200, "EventSource"),
        ("/page.css", {}, 200, "color-scheme"),
        ("/?q=%00%ff" + 500 * "x", HTML, 200, "No group has a key like that"),
    ],
)
async def test_it_is_for_those_who_may_read_the_status(
    testbed: BrokerTestbed, path: str, fields: dict[str, str], status: int, says: str
) -> None:
    manager = await shown(testbed, driver=NoopDriver())
    async with httpx.AsyncClient(base_url=manager.url, timeout=WAIT_S) as client:
        answer = await client.get(path, headers=fields)
        assert (answer.status_code, says in answer.text) == (status, True)
        refused = await client.post("/", headers=HTML, json={})
    assert refused.status_code == 405


async def test_too_many_open_pages_are_refused(
    testbed: BrokerTestbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("requite.page.streams.STREAMS_MAX", 0)
    manager = await shown(testbed, driver=NoopDriver())
    async with httpx.AsyncClient(base_url=manager.url, timeout=WAIT_S) as client:
        answer = await client.get("/events")
    assert (answer.status_code, "Too many open pages" in answer.text) == (503, True)


async def test_a_manager_ends_although_its_page_is_open(testbed: BrokerTestbed) -> None:
    manager = await shown(testbed, driver=NoopDriver())
    async with (
        httpx.AsyncClient(base_url=manager.url, timeout=WAIT_S) as client,
        client.stream("GET", "/events") as stream,
    ):
        lines = stream.aiter_lines()
        assert (await anext(lines)).startswith('data: {"state": "<dl')
        await manager.drain()
        assert [line async for line in lines if line.startswith("event")] == []


async def test_a_manager_on_standby_has_a_page(testbed: BrokerTestbed) -> None:
    await shown(testbed, driver=NoopDriver())
    other = await testbed.manager(page=PoolPage, driver=NoopDriver())
    await until(lambda: other.state is State.STANDBY, "a manager on standby")
    async with httpx.AsyncClient(timeout=WAIT_S) as client:
        answer = await client.get(other.url, headers=HTML)
    assert "stands by: another manager is active" in answer.text


@pytest.mark.slow
def test_the_command_has_the_page_if_its_packages_are_installed(tmp_path: Path) -> None:
    testbed = CommandTestbed(tmp_path, broker_process())
    try:
        _, url = testbed.manager()
        answer = httpx.get(url, headers=HTML, timeout=WAIT_S)
        assert (answer.status_code, "<h1>Pool <bdi>core</bdi>" in answer.text) == (200, True)
        without = "import sys; sys.modules['jinja2'] = None; from requite.cli import main; main()"
        words = ("pool", "run", "--config", str(testbed.file), "--broker", testbed.broker.url)
        process = Process("-c", without, *words)
        testbed.started.append(process)
        url = process.line().rpartition(" ")[2]
        answer = httpx.get(url, headers=HTML, timeout=WAIT_S)
        assert (answer.status_code, answer.text) == (404, "404: Not Found")
        assert httpx.get(f"{url}/status", timeout=WAIT_S).json()["pool"] == "core"
    finally:
        for each in reversed(testbed.started):
            each.dispose()
        sync_eventually(testbed.is_cleared, "the end of all workers")


# --- many groups, and bad texts -------------------------------------------------------------------
def group(key: str, **more: Any) -> dict[str, Any]:
    """Return a group as `/status` has it."""
    usual = {
        "expected": "active",
        "queue": "bound",
        "running": True,
        "workers": 1,
        "version": "1",
        "replacing": False,
        "messages": 0,
        "orphans": 0,
        "flaws": [],
        "failure": None,
    }
    return {"key": key, **usual, **more}


def status(*groups: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a status of a manager."""
    usual = {
        "pool": "core",
        "instance": "default",
        "version": "1",
        "state": "active",
        "broker": None,
        "draining": False,
        "generation": 1,
        "groups": list(groups),
        "groups_max": 1000,
        "orphans": {"waiting": 0, "forwarded": 0, "put_back": 0, "expired": 0},
        "dead_letters": {"in_hand": 0, "by_reason": {}, "poison": 0},
        "unknown_reports": 0,
    }
    return {**usual, **more}


def keys_of(table: str) -> list[str]:
    """Return the keys in a table of groups, in its order."""
    return re.findall(r'<tr data-key="(.*?)">', table)


def test_of_many_groups_those_with_trouble_and_most_messages_are_shown() -> None:
    groups = [group(f"k{number}", messages=number) for number in range(1000)]
    groups[7] |= {"failure": "no such program"}
    groups[5] |= {"flaws": ["a flaw"], "orphans": 9}
    snapshot = PoolSnapshot(status(*groups), ())
    parts = Groups().parts(snapshot, GroupsView())
    keys = keys_of(parts["groups"])
    assert len(keys) == GROUPS_MAX
    assert keys[:4] == ["k5", "k7", "k999", "k998"]
    assert "1,000 groups" in parts["groups"]
    assert "800 more groups not shown" in parts["groups"]
    assert '<dt>With trouble</dt><dd><span class="bad">2</span>' in parts["state"]
    assert keys_of(Groups().parts(snapshot, view_of({"q": "K99"}))["groups"]) == [
        "k999",
        "k998",
        "k997",
        "k996",
        "k995",
        "k994",
        "k993",
        "k992",
        "k991",
        "k990",
        "k99",
    ]


def test_bad_texts_are_no_code_and_do_not_grow() -> None:
    long = EVIL + "\x00\u202e" + 10_000 * "x"
    bad = group(EVIL, failure=long, flaws=[long] * 50, version=long, messages=None, workers=None)
    dead = {"in_hand": 1, "by_reason": {EVIL: 3}, "poison": 2}
    seen = status(bad, group(""), dead_letters=dead, broker=long, version=long, state="odd")
    event = GroupEvent(1.0, EVIL, GroupStep.FAILED, long)
    now = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    parts = Groups().parts(PoolSnapshot(seen, [(now, event)]), GroupsView())
    for text in parts.values():
        assert "<img" not in text
        assert "<script" not in text
        assert "\x00" not in text
        assert "\u202e" not in text
        assert 300 * "x" not in text
    assert f"and {50 - FLAWS_MAX} more" in parts["groups"]
    assert "the empty key" in parts["groups"]
    assert "2026-01-02 03:04:05.678" in parts["history"]
    assert "could not be started or stopped" in parts["history"]
