"""The page on typed services, run as printed except for the port; and its types, by checkers."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.page_steps import Terminals, steps
from tests.support.type_checkers import checked
from tests.typed.shop import served

import requite

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "type-a-service.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
PRINTED = "127.0.0.1:5555"


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    there = Terminals(tmp_path)
    there.write("orders.py", PROGRAMS[0])
    there.write("shop.py", PROGRAMS[1])
    yield there
    there.close()


def test_the_page_works_as_printed(terminals: Terminals) -> None:
    broker = ["requite", "broker", "--bind", "tcp://127.0.0.1:0", "--titanic", "kept"]
    place = terminals.run(broker).split("tcp://")[1].strip()
    terminals.write("shop.py", PROGRAMS[1].replace(PRINTED, place))
    terminals.write("later.py", PROGRAMS[4].replace(PRINTED, place))
    for words, output in steps(PAGE):
        printed = terminals.run([word.replace(PRINTED, place) for word in words])
        assert without_time(printed.replace(place, PRINTED)) == without_time(output)


def without_time(text: str) -> list[str]:
    return re.sub(r'"elapsed_ms": [\d.]+', "", text).split()


def test_the_tutorial_works_as_printed(tmp_path: Path) -> None:
    """The second page of the tutorial, with the change that it asks for."""
    page = (ROOT / "docs" / "tutorial" / "typed-service.md").read_text()
    service, visit = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    there = Terminals(tmp_path)
    there.write("greetings.py", service)
    commands = re.sub(r"^   ", "", page, flags=re.MULTILINE)
    place = PRINTED
    try:
        for words, output in steps(commands):
            if "broker" in words:
                words += ["--bind", "tcp://127.0.0.1:0"]
            words = [word.replace(PRINTED, place) for word in words]
            if "--diff" in words:
                there.write("greetings.py", service.replace("visits: int = 0", "visits: int"))
                there.stop(1)
                there.run(
                    ["requite", "worker", "greetings:greetings", "--connect", f"mdp://{place}"]
                )
            printed = there.run(words[:-2] if words[-2] == ">" else words)
            if "broker" in words:
                place = printed.split("tcp://")[1].strip()
                there.write("visit.py", visit.replace(PRINTED, place))
            if words[-2] == ">":
                there.write(words[-1], printed)
                printed = ""
            assert without_time(printed.replace(place, PRINTED)) == without_time(output)
    finally:
        there.close()


async def test_middleware_lifespan_and_dependencies_of_the_page(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names: dict[str, Any] = {}
    exec(compile(PROGRAMS[2], "around.py", "exec"), names)
    async with served(names["shop"]) as client:
        assert (await client.call(b"[100, 100]", service="shop.total")).body == b"194"
    assert capsys.readouterr().out == "total: True\n"


async def test_the_versions_of_the_page() -> None:
    names: dict[str, Any] = {}
    exec(compile(PROGRAMS[3], "versions.py", "exec"), names)
    async with served(names["first"], names["second"]) as client:
        replies = [client.call(b'"a"', service=f"orders{v}.price") for v in ("", ".v2")]
        assert [reply.body for reply in await asyncio.gather(*replies)] == [b"0.5", b"50"]


# --- types ----------------------------------------------------------------------------------------
BLOCKING = """
from collections.abc import Iterator
from typing import Protocol, Unpack

import requite
from orders import Order, OutOfStock, Quote

class Blocking(Protocol):
    @requite.raises(OutOfStock)
    def price(self, order: Order, **options: Unpack[requite.CallOptions]) -> Quote: ...
    def watch(self, order: Order) -> Iterator[Quote]: ...

def main() -> None:
    with requite.Client("mdp://127.0.0.1:5555/orders") as client:
        orders = client.bind(Blocking)
        quotes: list[Quote] = [orders.price(Order("a", 1), timeout=2), *orders.watch(Order("a", 1))]
        print(quotes)
"""
WRONG = """
async def wrong(orders: Orders) -> None:
    await orders.price("apple")
    text: str = await orders.price(Order("apple", 1))
    print(text)

orders = requite.Client("mdp://127.0.0.1:5555").bind(Orders)
reveal_type(orders)
"""
WRONG_OPTION = """
def wrong(orders: Blocking) -> None:
    orders.price(Order("a", 1), timeout="soon")
"""
DURABLE = """
async def later(client: requite.AsyncClient) -> None:
    price = client.durable(client.bind(Orders, "orders").price)
    ticket: str = await price.submit(Order("apple", 1), timeout=2)
    quote: Quote = await price.result(ticket, timeout=2)
    print(quote)
"""
WRONG_DURABLE = """
async def wrong(client: requite.AsyncClient) -> None:
    price = client.durable(client.bind(Orders, "orders").price)
    await price.submit("apple")
    text: str = await price.result("0" * 32)
    print(text)
"""


@pytest.mark.slow
@pytest.mark.parametrize("checker", ["mypy", "basedpyright"])
def test_durable_requests_are_typed_without_casts(checker: str, tmp_path: Path) -> None:
    (tmp_path / "orders.py").write_text(PROGRAMS[0])
    (tmp_path / "shop.py").write_text(PROGRAMS[1] + DURABLE)
    (tmp_path / "later.py").write_text(PROGRAMS[4])
    assert checked(checker, tmp_path) == []
    (tmp_path / "shop.py").write_text(PROGRAMS[1] + WRONG_DURABLE)
    errors = checked(checker, tmp_path)
    assert len(errors) == 2
    assert '"Order"' in errors[0]
    assert '"str"' in errors[1]


@pytest.mark.slow
@pytest.mark.parametrize("checker", ["mypy", "basedpyright"])
def test_calls_are_typed_without_casts(checker: str, tmp_path: Path) -> None:
    (tmp_path / "orders.py").write_text(PROGRAMS[0])
    (tmp_path / "shop.py").write_text(PROGRAMS[1])
    (tmp_path / "blocking.py").write_text(BLOCKING)
    assert checked(checker, tmp_path) == []
    (tmp_path / "shop.py").write_text(PROGRAMS[1] + WRONG)
    errors = checked(checker, tmp_path)
    assert len(errors) == 2
    assert '"Order"' in errors[0]
    assert '"str"' in errors[1]
    (tmp_path / "shop.py").write_text(PROGRAMS[1])
    (tmp_path / "blocking.py").write_text(BLOCKING + WRONG_OPTION)
    [error] = checked(checker, tmp_path)
    assert '"timeout"' in error


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=110)
    assert done.stdout, done.stderr
    return done.stdout


def test_requite_alone_loads_no_msgspec() -> None:
    program = "import requite, sys; requite.Client, requite.Worker; print('msgspec' in sys.modules)"
    assert run([sys.executable, "-c", program], ROOT) == "False\n"
    assert requite.Service.__name__ == "Service"  # loads it
    assert "msgspec" in sys.modules
