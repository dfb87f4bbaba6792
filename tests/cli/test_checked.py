"""`requite call --json` of typed services: checked before it is sent, printed as JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import Ended, requite, running, running_broker, running_worker

from requite.journal.reader import events

pytestmark = pytest.mark.e2e

SHOP = """
from collections.abc import AsyncIterator
from dataclasses import dataclass
from decimal import Decimal
import msgspec
import requite

class Order(msgspec.Struct):
    sku: str
    count: int

@dataclass
class OutOfStock(Exception):
    sku: str
    left: int

class Closed(Exception):
    pass

SERVICE = requite.Service("orders", codec={codec!r})

@SERVICE.method(errors=[OutOfStock, Closed])
async def price(order: Order) -> dict[str, Decimal]:
    print("ran", flush=True)
    if order.sku == "none":
        raise OutOfStock(order.sku, 3)
    if order.sku == "closed":
        raise Closed("until nine")
    return {{"price": Decimal(order.count) / 2}}

@SERVICE.method
async def raw(body: bytes) -> bytes:
    return body[::-1]
"""
WATCH = """
@SERVICE.method
async def watch(order: Order) -> AsyncIterator[int]:
    for n in range(order.count):
        yield n
    if order.sku == "none":
        raise ValueError("no more")
"""
PAY = """
PAID = []

@SERVICE.method(idempotent=requite.Dedup())
async def pay(order: Order) -> int:
    PAID.append(order)
    return len(PAID)

@SERVICE.method(idempotent=requite.Dedup())
async def pay_parts(order: Order) -> AsyncIterator[int]:
    PAID.append(order)
    for n in range(order.count):
        yield len(PAID)

@requite.service("pay", idempotent=requite.Dedup())
async def pay_bytes(request):
    PAID.append(request.body)
    return str(len(PAID)).encode()
"""
FOREIGN = """
import json
import requite

@requite.service("store.put")
async def put(request): return b"stored"

DESCRIPTION = {"requite": 1, "service": "evil", "version": "1", "prefix": "evil", "codec": "json",
    "methods": [{"name": "m", "address": "evil.m", "input": {"pattern": "^(a+)+$"}, "output": {}}]}

@requite.service("evil.describe")
async def evil(request): return json.dumps(DESCRIPTION).encode()

@requite.service("evil.m")
async def m(request): return b"it ran"

@requite.service("odd.describe")
async def odd(request): return b"hello"

@requite.service("odd.m")
async def odd_m(request): return b"it ran"
"""
ORDER = '{"sku": "a", "count": 3}'


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a broker with the services."""
    folder = tmp_path_factory.mktemp("services")
    (folder / "shop.py").write_text(SHOP.format(codec="json") + WATCH + PAY)
    (folder / "foreign.py").write_text(FOREIGN)
    names = ("put", "evil", "m", "odd", "odd_m")
    targets = ["shop:SERVICE", "shop:pay_bytes", *(f"foreign:{name}" for name in names)]
    with (
        running_broker() as (_broker, url),
        running_worker(*targets, "--connect", url, cwd=folder),
    ):
        yield url


def call(url: str, *words: str, **options: Any) -> Ended:
    return requite("call", url, *words, "--json", **options)


def test_a_request_that_fits(url: str) -> None:
    ended = call(f"{url}/orders.price", ORDER)
    assert (ended.code, ended.err) == (0, "")
    record = ended.record
    assert record.pop("elapsed_ms") > 0
    assert record == {
        "status": "OK", "body": {"price": "1.5"}, "encoding": "json", "attempts": 1,
    }  # fmt: skip
    assert call(url, "--service", "orders.price", stdin=ORDER.encode()).record["body"]
    assert call(f"{url}/orders.raw", "ab").record["body"] == "ba"


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        ('{"sku": "a", "count": "x"}', "$.count", "'x' is not of type 'integer'"),
        ('{"sku": "a", "count": 1, "count": 2}', "$", "an object has the key 'count' twice"),
        ("[" * 50_000, "$", "it is nested too deeply"),
        ("sku", "$", "JSON is malformed: invalid character (byte 0)"),
        ("", "$", "the body is empty"),
    ],
)
def test_a_request_that_does_not_fit_is_not_sent(
    url: str, text: str, path: str, reason: str
) -> None:
    ended = call(f"{url}/orders.price", text)
    assert (ended.code, ended.err) == (1, "")
    record = ended.record
    assert (record["status"], record["may_have_executed"]) == ("BAD_REQUEST", False)
    assert (record["attempts"], record["path"], record["reason"]) == (0, path, reason)


def test_partial_replies_are_a_line_each(url: str) -> None:
    ended = call(f"{url}/orders.watch", '{"sku": "a", "count": 2}')
    records = [json.loads(line) for line in ended.out.splitlines()]
    shown = [(each["status"], each.get("index"), each["body"]) for each in records]
    assert shown == [("PARTIAL", 0, 0), ("PARTIAL", 1, 1), ("OK", None, None)]
    failed = call(f"{url}/orders.watch", '{"sku": "none", "count": 1}')
    assert failed.code == 1
    assert failed.record["message"] == "ValueError: no more"


def test_declared_errors_have_their_data(url: str) -> None:
    ended = call(f"{url}/orders.price", '{"sku": "none", "count": 1}')
    assert (ended.code, ended.err) == (1, "")
    record = ended.record
    assert (record["status"], record["may_have_executed"]) == ("FAILED", True)
    assert (record["error"], record["data"]) == ("OutOfStock", {"sku": "none", "left": 3})
    closed = call(f"{url}/orders.price", '{"sku": "closed", "count": 1}').record
    assert (closed["error"], closed["message"]) == ("Closed", "Closed: until nine")
    assert "data" not in closed


def test_a_request_with_a_key_runs_once(url: str) -> None:
    key = ("--key", "one")
    first = call(f"{url}/orders.pay", ORDER, *key)
    paid = first.record["body"]
    again = call(f"{url}/orders.pay", '{"count": 3.0, "sku": "a"}', *key)
    assert (again.code, again.record["body"]) == (0, paid)
    other = call(f"{url}/orders.pay", '{"sku": "a", "count": 4}', *key)
    assert (other.code, other.record["status"]) == (1, "BAD_REQUEST")
    assert "key" in other.record["reason"]
    assert call(f"{url}/orders.pay", ORDER).record["body"] == paid + 1


def test_a_stream_with_a_key_runs_once(url: str) -> None:
    first, second = (call(f"{url}/orders.pay_parts", ORDER, "--key", "two") for _ in range(2))
    parts = [json.loads(line)["body"] for line in first.out.splitlines()]
    assert [json.loads(line)["body"] for line in second.out.splitlines()] == parts
    assert len(parts) == 4


def test_a_request_of_bytes_with_a_key_runs_once(url: str) -> None:
    ended = [requite("call", f"{url}/pay", "5", "--key", key) for key in ("a", "a", "b")]
    paid = [int(each.out) for each in ended]
    assert paid == [paid[0], paid[0], paid[0] + 1]
    refused = requite("call", f"{url}/pay", "6", "--key", "a")
    assert (refused.code, refused.out) == (1, "")
    assert "idempotency key" in refused.err


def test_a_method_that_does_not_exist(url: str) -> None:
    ended = call(f"{url}/orders.cost", ORDER)
    assert (ended.code, ended.err) == (1, "")
    record = ended.record
    assert (record["status"], record["may_have_executed"]) == ("BAD_REQUEST", False)
    methods = "price, raw, watch"
    assert record["message"].startswith(f"orders has no method cost; it has {methods}")
    assert record["message"].endswith("; the request was not sent")


def test_a_service_that_nobody_serves(url: str) -> None:
    ended = call(f"{url}/nothing.cost", ORDER, "--timeout", "0.5")
    assert ended.code == 4
    assert (ended.record["status"], ended.record["attempts"]) == ("NO_SERVICE", 0)
    assert "no worker serves 'nothing.cost'" in ended.record["message"]


def test_a_service_without_a_description(url: str) -> None:
    ended = call(f"{url}/store.put", "{}")
    assert ended.code == 4
    record = ended.record
    assert (record["status"], record["may_have_executed"]) == ("NO_SERVICE", False)
    assert "store.put has no description, so --json cannot check the request" in record["message"]
    assert "leave out --json for a service of bytes" in record["message"]
    assert requite("call", f"{url}/store.put", "{}").out == "stored"
    assert call(f"{url}/mmi.ping").record["status"] == "OK"


def test_what_is_no_description(url: str) -> None:
    ended = call(f"{url}/odd.m", "{}")
    assert (ended.code, ended.out) == (5, "")
    assert "what odd.describe returns is not a description of a typed service" in ended.err


def test_a_schema_that_would_take_forever(url: str) -> None:
    began = time.monotonic()
    ended = call(f"{url}/evil.m", f'"{"a" * 60}!"', "--timeout", "2")
    assert (ended.code, ended.out) == (5, "")
    assert "its schema takes longer than" in ended.err
    assert "which was not sent" in ended.err
    assert time.monotonic() - began < 60


def test_without_a_broker(tmp_path: Path) -> None:
    (tmp_path / "alone.py").write_text(SHOP.format(codec="msgpack"))
    with running(
        "worker", "alone:SERVICE", "--bind", "sp+tcp://127.0.0.1:0", cwd=tmp_path
    ) as worker:
        place = worker.line().split()[-1]
        price = ("--service", "orders.price")
        assert call(place, ORDER, *price).record["body"] == {"price": "1.5"}
        failed = call(place, '{"sku": "none", "count": 1}', *price)
        assert (failed.code, failed.record["error"]) == (1, "OutOfStock")
        assert call(place, "[]", *price).record["status"] == "BAD_REQUEST"
        assert worker.line() == "ran"  # for the first
        assert worker.line() == "ran"
        worker.process.terminate()
        assert worker.end()[1] == ""  # and the third was not sent
        bound = call("sp+tcp://127.0.0.1:0", ORDER, *price, "--bind")
        assert "typed services, which have no --bind" in bound.err


def test_a_durable_request_is_checked_too(tmp_path: Path) -> None:
    (tmp_path / "later.py").write_text(SHOP.format(codec="json"))
    with (
        running_broker("--titanic", str(tmp_path / "requests")) as (_broker, url),
        running_worker("later:SERVICE", "--connect", url, cwd=tmp_path),
    ):
        refused = call(f"{url}/orders.price", "[]", "--submit")
        assert refused.record["status"] == "BAD_REQUEST"
        ticket = call(f"{url}/orders.price", ORDER, "--submit").record["ticket"]
        assert requite("result", url, ticket).out == '{"price":"1.5"}'


def test_a_recorded_call_is_one_request_in_the_journal(url: str, tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    assert call(f"{url}/orders.price", ORDER, "--journal", str(folder)).code == 0
    services = {row.service for row in events(folder) if row.service}
    assert services == {"orders.price"}
