"""Acts on the page of a broker in a headless Chromium: by keyboard, narrow, and dark."""

from __future__ import annotations

import pytest
from tests.cli.command import requite
from tests.page.rig import get, serving, shown
from tests.page.test_page import LIVE, MAIN, WIDTH, only_asked, tab_to
from tests.support.browser import CHROMIUM, Page

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM, reason="there is no chromium"),
]

TITLE = "document.querySelector('h1')?.textContent"
FOCUS = "document.activeElement?.textContent"


async def test_a_service_is_paused_by_keyboard(page: Page) -> None:
    with shown() as broker, serving(broker, "echo"):
        await page.open(f"{broker.page}/services/echo", 390, dark=True)
        await page.until(LIVE)
        assert await page.run(WIDTH) <= 390
        await tab_to(page, f"{FOCUS} == 'Pause'")
        await page.press("Enter")
        await page.until(f"{TITLE} == 'Pause echo?'")
        assert await page.run(WIDTH) <= 390
        await tab_to(page, f"{FOCUS} == 'Pause' && document.activeElement.form")
        await page.press("Enter")
        await page.until(f"{MAIN}.includes('echo is paused')")
        assert requite("services", broker.url, "--json").record["services"][0]["paused"]
        await tab_to(page, f"{FOCUS} == 'Back to echo'")
        await page.press("Enter")
        await page.until(f"{LIVE} && {MAIN}.includes('paused')")
        assert only_asked(page, broker)


async def test_a_broker_is_drained_without_javascript(page: Page) -> None:
    with shown() as broker:
        await page.send("Emulation.setScriptExecutionDisabled", value=True)
        await page.open(f"{broker.page}/", 390)
        await page.until(f"{MAIN}.includes('Drain')")
        await tab_to(page, f"{FOCUS} == 'Drain'")
        await page.press("Enter")
        await page.until(f"{TITLE} == 'Drain this broker?'")
        assert get(broker, "/ready").status == 200, "a question changes nothing"
        await tab_to(page, f"{FOCUS} == 'Drain' && document.activeElement.form")
        await page.press("Enter")
        await page.until(f"{MAIN}.includes('The broker refuses new requests')")
        assert broker.process.end()[0] == 0
        page.complaints.clear()  # the broker may end before the browser has its files


async def test_a_worker_is_disconnected_while_the_page_changes(page: Page) -> None:
    with shown() as broker, serving(broker, "echo"):
        await page.open(f"{broker.page}/services/echo")
        await page.until(f"{LIVE} && document.querySelector('.kick') !== null")
        await page.run("document.querySelector('.kick').click()")
        await page.until(f"{TITLE}?.startsWith('Disconnect the worker')")
        await page.run("document.querySelector('#reason').value = 'by hand'")
        await page.run("document.querySelector('form.act button').click()")
        await page.until(f"{MAIN}.includes('Connections that were ended: 1.')")
