"""The commands of "Open an HTTP door", run as printed except for the ports; and its programs."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.page_steps import Terminals, steps
from tests.typed.shop import Shop

import requite
from requite.access.file import parse
from requite.gateway.problems import KINDS
from requite.testing.processes import free_ports

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/open-an-http-door.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
_AT = "whiletherequestwasataworker"
_ID = re.compile(r"\b[0-9a-f]{32}\b")  # differs each time


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    terminals = Terminals(tmp_path)
    terminals.write("orders.py", PROGRAMS[0])
    yield terminals
    terminals.close()


@pytest.mark.e2e
@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_the_commands_work_as_printed(terminals: Terminals) -> None:
    text, ports = PAGE, free_ports(2)
    for usual, port in zip((5555, 8080), ports, strict=True):
        text = text.replace(f":{usual}", f":{port}")
    programs = []
    for words, expected in steps(text):
        programs.append(words[0])
        if words[1] == "broker":
            words += ["--bind", f"tcp://127.0.0.1:{ports[0]}"]
        printed = terminals.run(words)
        # The page breaks lines. On a busy machine the client's deadline comes before the broker's.
        told, wanted = (
            _ID.sub("", "".join(text.split()).replace(_AT, "")) for text in (printed, expected)
        )
        assert told == wanted
    assert programs == ["requite"] * 3 + ["curl"] * 5


async def test_the_application_of_the_page() -> None:
    names: dict[str, Any] = {}
    place = "inproc://app-of-the-page"
    program = PROGRAMS[1].replace("mdp://127.0.0.1:5555", f"mdp+{place}")
    exec(compile(program, "app.py", "exec", dont_inherit=True), names)
    app = names["app"]
    broker, shop = requite.Broker(place), Shop()
    await broker.start()
    worker = requite.Worker(f"mdp+{place}", shop.service)
    await worker.start()
    await worker.until_connected(0)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://door") as http,
    ):
        answer = await http.post("/rpc/orders.price", json={"sku": "a", "count": 2})
        assert answer.json() == {"price": "1"}
    await worker.close()
    await broker.close()


def test_the_page_has_every_kind_of_failure() -> None:
    rows = re.findall(r"^\| (\d{3}) \| (.*?) \|", PAGE, flags=re.MULTILINE)
    listed = {name: int(status) for status, cell in rows for name in re.findall(r"`(\w+)`", cell)}
    known = {name: kind.status for name, kind in KINDS.items()}
    assert known.pop("DeclaredError") == 422
    assert known.pop("Internal") == 500
    assert listed == known


def test_the_access_files_of_the_page_are_valid() -> None:
    texts = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
    users = [list(parse(text.encode()).users) for text in texts]
    assert users == [["shop"], ["gateway", "shop", "orders-worker"]]
