"""What is made of descriptions: differences, stubs and documents of AsyncAPI."""

import gzip
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict
from uuid import UUID

import jsonschema
import msgspec
import pytest
from jsonschema_specifications import REGISTRY as DIALECTS
from tests.typed.shop import Shop

import requite
from requite import RemoteViolation
from requite.typed.asyncapi import asyncapi_of
from requite.typed.changes import incompatible_changes
from requite.typed.described import Description, read_description
from requite.typed.stub import stub_of


def described(service: requite.Service) -> Description:
    return read_description(msgspec.json.encode(service.describe()), "it")


# --- reading --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"501", "expected object, got int"),
        (b"", "truncated"),
        (b"\xff", "malformed"),
        (b"{}", "missing required field requite"),
        (
            b'{"requite":2,"service":"a","version":"1","prefix":"a","codec":"json","methods":[]}',
            "2",
        ),
        (
            b'{"requite":1,"service":"a","version":"1","prefix":"a","codec":"json","methods":'
            b'[{"name":"import os","address":"a","input":{},"output":{}}]}',
            "'import os' cannot be the name of a method",
        ),
    ],
)
def test_what_is_no_description(body: bytes, reason: str) -> None:
    with pytest.raises(RemoteViolation, match=f"(?i)it is not a description.*{reason}"):
        read_description(body, "it")


# --- differences ----------------------------------------------------------------------------------
def one_method(input: Any, output: Any) -> Description:
    service = requite.Service("orders")

    async def method(message: input) -> output:  # type: ignore[valid-type]
        raise NotImplementedError

    service.method(method)
    return described(service)


def struct(name: str, *fields: Any) -> Any:
    return msgspec.defstruct(name, fields)


A = struct("A", ("x", int))
ENDLESS = msgspec.json.decode(
    b'{"requite":1,"service":"a","version":"1","prefix":"a","codec":"json","methods":[{"name":"m",'
    b'"address":"a.m","input":{"$ref":"#/$defs/T"},"output":{"$ref":"#/$defs/T"}}],"$defs":{"T":'
    b'{"type":"object","properties":{"next":{"$ref":"#/$defs/T"}}}}}',
    type=Description,
)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((int, int), (int, int)),
        ((int, float), (float, int)),
        ((int, int | None), (int | None, int)),
        ((A, A), (struct("A", ("x", int), ("y", int, 0)), struct("B", ("x", int), ("z", str)))),
        ((struct("C", ("x", int), ("y", str)), A), (A, A)),
        ((Literal["a"], Literal["a", "b"]), (Literal["a", "b"], Literal["a"])),
        ((Literal["a"], str), (str, Literal["a"])),
        ((list[A], dict[str, A]), (list[A], dict[str, A])),
        ((datetime, datetime), (datetime, datetime)),
    ],
)
def test_compatible_changes(old: Any, new: Any) -> None:
    assert incompatible_changes(one_method(*old), one_method(*new)) == []


def test_a_description_from_before_times_had_formats_is_compatible() -> None:
    timed = struct("Timed", ("at", datetime), ("times", list[time | None]))
    new = one_method(timed, timed)
    old = msgspec.json.encode(new)
    for name in ("date-time", "time"):
        assert b'"format":"%b"' % name.encode() in old
        old = old.replace(b',"format":"%b"' % name.encode(), b"")
    assert b"format" not in old
    assert incompatible_changes(read_description(old, "it"), new) == []


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        ((int, int), (str, int), "refuses requests that it took: $ is integer, not string"),
        ((float, int), (int, int), "refuses requests that it took: $ is number, not integer"),
        ((int | None, int), (int, int), "refuses requests that it took: $ is null, not integer"),
        ((int, int), (int, int | None), "returns what its callers cannot read: $ is null"),
        (
            (A, int),
            (struct("A", ("x", int), ("y", int)), int),
            "refuses requests .*: $.y is missing",
        ),
        ((int, A), (int, struct("A", ("x", int, 0))), "cannot read: $.x may be missing"),
        ((int, A), (int, struct("A", ("x", str))), "cannot read: $.x is string, not integer"),
        ((Literal["a", "b"], int), (Literal["a"], int), "refuses .*: $ may be 'b'"),
        ((str, int), (Literal["a"], int), "refuses .*: $ is any string, not one of ['a']"),
        ((int, str), (int, Decimal), None),
        ((int, datetime), (int, str), "cannot read: $ is any string, not date-time"),
        ((date, int), (datetime, int), "refuses requests that it took: $ is date, not date-time"),
        ((int, Decimal), (int, str), "cannot read: $ is any string, not decimal"),
        ((int, list[int]), (int, list[str]), "cannot read: $[] is string, not integer"),
        ((int, dict[str, A]), (int, dict[str, int]), "cannot read: $.* is integer, not object"),
        ((int, tuple[int, A]), (int, tuple[int, int]), "cannot read: $[1] is integer, not object"),
    ],
)
def test_incompatible_changes(old: Any, new: Any, change: str | None) -> None:
    found = incompatible_changes(one_method(*old), one_method(*new))
    if change is None:
        assert found == []
        return
    [told] = found
    assert told.startswith("method ")
    for part in change.split(".*"):
        assert part in told


def test_types_that_refer_to_each_other_in_many_ways_are_compared_once() -> None:
    def linked(end: Any) -> Description:
        references = [{"anyOf": [{"$ref": f"#/$defs/A{n}"}]} for n in range(61)]
        schemas = {
            f"A{n}": {
                "type": "object",
                "properties": {"a": references[n + 1]} | {"b": {**references[n + 1]}},
            }
            for n in range(60)
        }
        schemas["A60"] = {"type": "object", "properties": {"end": end, "top": references[0]}}
        return msgspec.structs.replace(
            ENDLESS,
            definitions=schemas,
            methods=[
                msgspec.structs.replace(
                    ENDLESS.methods[0], input=references[0], output={"type": "null"}
                )
            ],
        )

    old, new = linked({"type": "string"}), linked({"type": "integer"})
    assert incompatible_changes(old, old) == []
    [told] = incompatible_changes(old, new)
    assert told.endswith(f"{'.a' * 60}.end is string, not integer")


def test_other_incompatible_changes() -> None:
    before, after = described(Shop().service), described(Shop(partials=False).service)
    assert incompatible_changes(before, after) == ["watch is gone", "listing is gone"]
    assert incompatible_changes(after, before) == []
    packed = described(Shop(codec="msgpack", version="2").service)
    assert incompatible_changes(before, packed) == [
        "the names begin with orders.v2, not with orders",
        "the codec is msgpack, not json",
    ]
    before.methods[0].partial = True
    assert incompatible_changes(before, described(Shop().service)) == [
        "price has no partial replies now"
    ]


def test_recursive_types_are_compared() -> None:
    assert incompatible_changes(ENDLESS, ENDLESS) == []
    other: Description = msgspec.convert(msgspec.to_builtins(ENDLESS), Description)
    other.definitions["T"]["required"] = ["next"]
    assert incompatible_changes(ENDLESS, other) == [
        "m refuses requests that it took: $.next may be missing"
    ]


# --- stubs ----------------------------------------------------------------------------------------
class Cat(msgspec.Struct, tag=True):
    lives: int = 9


class Dog(msgspec.Struct, tag=True):
    tricks: list[str] = []


class Odd(TypedDict):
    x_y: int
    price: NotRequired[Decimal]


class Renamed(msgspec.Struct, rename={"from_": "from"}):
    from_: str
    share: Decimal = Decimal("0.5")


CALLER = """
from decimal import Decimal
import requite
from stub import {name} as Api, {name}Blocking, Cat, Dog, Order, OutOfStock, Quote, Renamed

async def main(client: requite.AsyncClient) -> None:
    api = client.bind(Api, {prefix!r})
    quote: Quote = await api.price(Order("a", 2), timeout=2.0, idempotent=False)
    assert await api.choose(["a"], timeout=requite.deadline(2)) == 1
    price: Decimal = quote.price
    quotes: list[Quote] = [quote async for quote in api.watch(Order("a", 2))]
    pets: list[Cat | Dog] = await api.pets(Renamed("x"))
    try:
        await api.ping()
    except OutOfStock as error:
        left: int = error.left
        print(left, price, quotes, pets)

async def later(client: requite.AsyncClient) -> Quote:
    price = client.durable(client.bind(Api, {prefix!r}).price)
    ticket: str = await price.submit(Order("a", 2), idempotency_key=b"order 1")
    return await price.result(ticket, timeout=2)

def blocking(client: requite.Client) -> Quote:
    return client.bind({name}Blocking, {prefix!r}).price(Order("a", 2))

def blocking_later(client: requite.Client) -> Quote:
    price = client.durable(client.bind({name}Blocking, {prefix!r}).price)
    return price.result(price.submit(Order("a", 2), timeout=2), timeout=2)
"""


def with_pets() -> requite.Service:
    service = Shop(version="2.0").service

    @service.method
    async def pets(named: Renamed) -> list[Cat | Dog]:
        """Return "pets".

        All of them \\\\o/.
        """
        return [Cat(3), Dog(["sit"])]

    @service.method
    async def odd(odds: Odd) -> tuple[int, Literal["a", None]]:
        return (odds["x_y"], None)

    @service.method
    async def choose(options: list[str]) -> int:
        return len(options)

    return service


@pytest.mark.slow
def test_a_stub_is_typed(tmp_path: Path) -> None:
    (tmp_path / "stub.py").write_text(stub_of(described(with_pets())))
    (tmp_path / "caller.py").write_text(CALLER.format(name="OrdersV2", prefix="orders.v2"))
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull, "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=110)
    assert "Success: no issues found in 2 source files" in done.stdout, done.stdout


def test_the_times_of_a_stub_are_times() -> None:
    kinds = (datetime, time, date, timedelta, UUID, list[datetime])
    timed = struct("Timed", *((f"f{n}", kind) for n, kind in enumerate(kinds)))
    stub = stub_of(one_method(timed, datetime | None))
    for line in (
        "    f0: datetime\n    f1: time\n    f2: date\n    f3: timedelta\n    f4: UUID\n",
        "    f5: list[datetime]\n",
        "from datetime import date, datetime, time, timedelta\n",
        ") -> datetime | None:\n",
    ):
        assert line in stub


def test_fields_of_a_stub_may_have_the_names_of_types() -> None:
    timed = struct("Timed", ("time", time), ("end", time), ("datetime", str, ""))
    namespace: dict[str, Any] = {"__name__": "stub"}
    text = stub_of(one_method(timed, datetime))
    assert "from datetime import datetime as datetime_, time as time_\n" in text
    assert "    time: time_\n    end: time_\n    datetime: str = ''\n" in text
    assert ") -> datetime_:\n" in text
    exec(text, namespace)
    assert issubclass(namespace["Timed"], msgspec.Struct)


async def test_a_stub_calls_its_service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tests.typed.shop import served

    (tmp_path / "orders_stub.py").write_text(stub_of(described(with_pets())))
    monkeypatch.syspath_prepend(tmp_path)
    import orders_stub as stub  # type: ignore[import-not-found]

    async with served(with_pets()) as client:
        api = client.bind(stub.OrdersV2, "orders.v2")
        assert await api.price(stub.Order("a", 3)) == stub.Quote(Decimal("1.5"))
        with pytest.raises(stub.OutOfStock) as caught:
            await api.price(order=stub.Order("none", 1))
        assert (caught.value.sku, caught.value.left) == ("none", 3)
        with pytest.raises(stub.Closed, match="until nine"):
            await api.price(stub.Order("closed", 1))
        assert await api.pets(stub.Renamed("x")) == [stub.Cat(3), stub.Dog(["sit"])]
        assert stub.Renamed("x").share == Decimal("0.5")
        assert await api.odd(stub.Odd(7)) == (7, None)
        assert await api.choose(options=["a", "b"], timeout=requite.deadline(20)) == 2
        assert len([quote async for quote in api.watch(stub.Order("a", 2))]) == 2
        assert await api.ping() is None
        assert await api.raw(b"ab") == b"ba"


# --- AsyncAPI -------------------------------------------------------------------------------------
def references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for value in part.values():
            yield from references(value)
    elif isinstance(part, list):
        for value in part:
            yield from references(value)


def test_a_document_of_asyncapi() -> None:
    document = asyncapi_of(described(with_pets()))
    found = set(references(document))
    assert "#/components/schemas/Order" in found
    for reference in found:
        place: Any = document
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]
    price = document["operations"]["price"]
    assert price["action"] == "receive"
    assert document["channels"]["price"]["address"] == "orders.v2.price"
    assert [each["$ref"].rpartition("/")[2] for each in price["reply"]["messages"]] == [
        "reply",
        "OutOfStock",
        "Closed",
    ]
    assert document["asyncapi"] == "3.0.0"


def test_times_of_asyncapi_have_a_format() -> None:
    timed = struct("Timed", ("at", datetime))
    schemas = asyncapi_of(one_method(timed, timed))["components"]["schemas"]
    assert schemas["Timed"]["properties"]["at"] == {"type": "string", "format": "date-time"}


ASYNCAPI = Path(__file__).parent / "asyncapi" / "3.0.0.json.gz"
SHA256 = "d4571a420e6ffb7fcc7066c95a6db1202f299a3c51daa103d0706bf30f95e626"


@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_documents_fit_the_schema_of_asyncapi(codec: str) -> None:
    text = gzip.decompress(ASYNCAPI.read_bytes())
    assert hashlib.sha256(text).hexdigest() == SHA256  # unchanged
    # The registry has the dialects of JSON Schema; nothing is fetched.
    validator = jsonschema.Draft7Validator(json.loads(text), registry=DIALECTS)
    for service in (with_pets(), Shop(codec=codec).service):
        document = json.loads(json.dumps(asyncapi_of(described(service))))
        assert [error.message for error in validator.iter_errors(document)] == []
        document["operations"]["price"]["action"] = "answer"
        assert list(validator.iter_errors(document)) != []
