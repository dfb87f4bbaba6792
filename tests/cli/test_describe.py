"""`requite describe` and `requite stub`: what typed services take and return."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.command import requite, running, running_broker, running_worker

pytestmark = pytest.mark.e2e

SHOP = '''
import msgspec
import requite

class Order(msgspec.Struct):
    sku: str
    count: int{more}

orders = requite.Service("orders", version="{version}")

@orders.method(errors=[KeyError])
async def price(order: Order) -> float:
    """Price an order."""
    return 0.5
'''


def test_a_bad_request_has_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    target = shop(tmp_path, "fourth", "1.0")
    with running_broker() as (_broker, url), running_worker(target, "--connect", url):
        ended = requite("call", f"{url}/orders.price", '{"sku": "a", "count": "x"}')
        assert (ended.code, ended.out) == (1, "")
        assert "$.count: expected int, got str; the request has not run" in ended.err
        record = requite("call", f"{url}/orders.price", "[]", "--json").record
        assert (record["status"], record["may_have_executed"]) == ("BAD_REQUEST", False)
        assert requite("call", f"{url}/orders.price", '{"sku":"a","count":1}').out == "0.5"


def shop(folder: Path, name: str, version: str, more: str = "") -> str:
    (folder / f"{name}.py").write_text(SHOP.format(version=version, more=more))
    return f"{name}:orders"


def test_services_of_a_broker_are_described(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = (
        shop(tmp_path, "first", "1.0"),
        shop(tmp_path, "second", "2.0", "\n    new: str"),
    )
    with running_broker() as (_broker, url), running_worker(first, second, "--connect", url):
        ended = requite("describe", url)
        assert (ended.code, ended.err) == (0, "")
        assert ended.out.splitlines() == [
            "orders 1.0 (json)",
            "  orders.price(Order) -> float, raises KeyError",
            "      Price an order.",
            "",
            "orders 2.0 (json)",
            "  orders.v2.price(Order) -> float, raises KeyError",
            "      Price an order.",
        ]
        assert len(requite("describe", url, "--json").record["services"]) == 2

        old = requite("describe", url, "orders", "--json")
        (tmp_path / "old.json").write_bytes(old.stdout)
        assert old.record["$defs"]["Order"]["required"] == ["sku", "count"]
        same = requite("describe", f"{url}/orders", "--diff", "old.json")
        assert (same.code, same.out) == (0, "orders 1.0 is compatible with 1.0\n")
        other = requite("describe", url, "orders.v2", "--diff", "old.json")
        assert other.code == 1
        assert "price refuses requests that it took: $.new is missing" in other.out
        assert "orders 2.0 is not compatible with 1.0" in other.err

        document = json.loads(requite("describe", url, "orders", "--asyncapi").out)
        assert document["channels"]["price"]["address"] == "orders.price"

        stub = requite("stub", url, "orders.v2")
        assert (stub.code, stub.err) == (0, "")
        compile(stub.out, "stub.py", "exec")
        assert "class OrdersV2Blocking(Protocol):" in stub.out

        missing = requite("describe", url, "nothing")
        assert (missing.code, missing.out) == (4, "")
        assert "nothing.describe" in missing.err


def test_a_service_without_a_broker_is_described(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    target = shop(tmp_path, "third", "1.0")
    command = ("worker", target, "--bind", "sp+tcp://127.0.0.1:0")
    with running(*command) as worker:
        place = worker.line().split()[-1]
        ended = requite("describe", place, "orders")
        assert ended.out.startswith("orders 1.0 (json)\n")
        assert "name one after the URL" in requite("describe", place).err


def test_what_is_no_typed_service(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd.py").write_text(
        "import requite\n"
        "@requite.service('odd.describe')\nasync def odd(request): return b'hello'\n"
    )
    with running_broker() as (_broker, url):
        assert requite("describe", url).out == "no typed services\n"
        with running_worker("odd:odd", "--connect", url):
            ended = requite("describe", url)
        assert ended.code == 5
        assert "what odd.describe returns is not a description of a typed service" in ended.err


def test_options_that_exclude_each_other(refusal, tmp_path):
    assert "exclude each other" in refusal("describe", "mdp://127.0.0.1:1", "--json", "--asyncapi")
    missing = str(tmp_path / "missing.json")
    assert "cannot read" in refusal("describe", "mdp://127.0.0.1:1", "--diff", missing)
