"""The example `orders`: its README as printed, and what the README promises."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from examples.orders.api import CardDeclined, Order, Orders, OutOfStock, Receipt
from tests.support.live import BrokerProcess, eventually
from tests.support.page_steps import Terminals, steps
from tests.support.type_checkers import checked

import requite
from requite.testing.processes import Child, free_ports

pytestmark = pytest.mark.e2e

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "orders"
PAGE: Final = (EXAMPLE / "README.md").read_text(encoding="utf-8")
_ID: Final = re.compile(r"\b[0-9a-f]{32}\b")  # differs each time
PRINTED: Final = "127.0.0.1:5555"
PRINTED_HTTP: Final = "127.0.0.1:8080"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the example."""
    folder = tmp_path / "orders"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture
def place() -> str:
    """The address of the broker."""
    [port] = free_ports(1)
    return f"127.0.0.1:{port}"


@pytest.fixture
def terminals(folder: Path, place: str) -> Iterator[Terminals]:
    terminals = Terminals(folder, {"BROKER": f"mdp://{place}"})
    yield terminals
    terminals.close()


def test_the_readme_works_as_printed(terminals: Terminals, place: str) -> None:
    ran = []
    [port] = free_ports(1)
    page = PAGE.replace(PRINTED, place).replace(PRINTED_HTTP, f"127.0.0.1:{port}")
    for words, output in steps(page):
        bind = ["--bind", f"tcp://{place}"] if words[1] == "broker" else []
        printed = terminals.run([*words, *bind])
        told, wanted = (_ID.sub("", text).rstrip() for text in (printed, output))
        assert told == wanted
        ran.append(words[1])
    assert Counter(ran) == {
        "broker": 1, "worker": 2, "gateway": 1, "shop.py": 6, "call": 1, "-s": 3,
    }  # fmt: skip
    assert len(PAGE.splitlines()) <= 80


@pytest.mark.slow
def test_its_types_are_correct_for_basedpyright(folder: Path) -> None:
    assert checked("basedpyright", folder) == []


# --- processes that are killed --------------------------------------------------------------------
class Scene:
    """A broker, the workers of both services, and a caller."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._broker = BrokerProcess()
        self._url = self._broker.endpoint.replace("tcp://", "mdp://")
        self._workers: dict[str, Child] = {}
        self.client = requite.AsyncClient(self._url, timeout=10)
        self.orders = self.client.bind(Orders, "orders")

    def start(self, service: str) -> None:
        """Start the worker of a service."""
        self._workers[service] = worker = Child(
            service,
            ["-m", "requite.cli", "worker", f"{service}:{service}", "--connect", self._url],
            environment={"BROKER": self._url},
            folder=self._folder,
        )
        assert worker.read_line(None).startswith(f"serving {service}.")

    def signal(self, service: str, number: signal.Signals) -> None:
        """Send a signal to the worker of a service."""
        self._workers[service].send_signal(number)

    def kill(self, service: str) -> None:
        """Kill the worker of a service."""
        self._workers[service].kill()

    def rows(self, file: str, query: str) -> list[Any]:
        """Return the rows of a query to one of the databases."""
        with closing(sqlite3.connect(self._folder / file)) as database:
            return database.execute(query).fetchall()

    def paid(self) -> list[bytes]:
        """Return the keys of the payments."""
        return [key for (key,) in self.rows("payments.db", "SELECT key FROM payments")]

    def left(self, sku: str) -> int:
        """Return how many pieces are left."""
        articles = dict(self.rows("stock.db", "SELECT sku, left FROM articles"))
        return int(articles[sku])

    async def close(self) -> None:
        """End the client and all processes."""
        await self.client.close()
        for worker in self._workers.values():
            worker.kill()
        self._broker.dispose()


@pytest.fixture
async def scene(folder: Path) -> AsyncIterator[Scene]:
    scene = Scene(folder)
    scene.start("payments")
    scene.start("orders")
    yield scene
    await scene.close()


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_each_order_is_paid_once_although_workers_are_killed(scene: Scene) -> None:
    keys = [b"order-%d" % number for number in range(60)]
    victims = ["payments", "payments", "orders"] * 2

    async def buy(key: bytes) -> Receipt:
        while True:
            try:
                order = Order("apple", 2, "ann")
                return await scene.orders.place(order, timeout=10, idempotency_key=key)
            except requite.CallError:
                continue  # with the same key

    receipts: list[Receipt] = []
    for number, victim in enumerate(victims):
        buying = asyncio.gather(*map(buy, keys[number * 10 : number * 10 + 10]))
        some = number * 10 + 1 + number % 4
        await asyncio.to_thread(eventually, lambda some=some: len(scene.paid()) >= some, "payments")
        scene.kill(victim)
        await asyncio.to_thread(scene.start, victim)
        receipts += await buying
    assert sorted(scene.paid()) == sorted(keys)
    assert len({receipt.payment for receipt in receipts}) == len(keys)
    assert {receipt.cents for receipt in receipts} == {100}
    assert scene.left("apple") == 1000 - 2 * len(keys)
    [(cents,)] = scene.rows("payments.db", "SELECT cents FROM cards WHERE card = 'ann'")
    assert cents == 100_000 - 100 * len(keys)


async def test_a_failed_order_leaves_no_trace(scene: Scene) -> None:
    with pytest.raises(OutOfStock) as out:
        await scene.orders.place(Order("pear", 21, "ann"), idempotency_key=b"a")
    assert (out.value.sku, out.value.left) == ("pear", 20)
    for card in ("bob", "eve"):
        with pytest.raises(CardDeclined):
            await scene.orders.place(Order("pear", 20, card), idempotency_key=b"b")
    assert (scene.left("pear"), scene.paid()) == (20, [])
    await scene.orders.place(Order("pear", 20, "ann"), idempotency_key=b"a2")
    assert (scene.left("pear"), scene.paid()) == (0, [b"a2"])


async def test_the_deadline_of_an_order_is_that_of_its_payment(scene: Scene) -> None:
    scene.kill("payments")
    with pytest.raises(requite.CallError):
        await scene.orders.place(Order("pear", 20, "ann"), timeout=1.5, idempotency_key=b"late")
    scene.start("payments")
    await asyncio.to_thread(eventually, lambda: scene.left("pear") == 20, "the goods put back")
    await scene.orders.place(Order("pear", 20, "ann"), timeout=10, idempotency_key=b"next")
    assert scene.paid() == [b"next"]


async def test_a_repetition_settles_an_order_whose_payment_may_have_run(scene: Scene) -> None:
    order = Order("pear", 4, "ann")
    scene.signal("payments", signal.SIGSTOP)
    with pytest.raises(requite.CallError):
        await scene.orders.place(order, timeout=4, idempotency_key=b"frozen")
    assert scene.left("pear") == 16
    scene.signal("payments", signal.SIGCONT)
    receipt = await scene.orders.place(order, timeout=10, idempotency_key=b"frozen")
    assert receipt == Receipt(1, 320)
    assert (scene.left("pear"), scene.paid()) == (16, [b"frozen"])
