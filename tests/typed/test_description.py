"""Descriptions: what a service says of itself, in JSON Schema 2020-12."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, time
from typing import Annotated, Any, Generic, NamedTuple, TypedDict, TypeVar

import msgspec
import pydantic
from jsonschema import Draft202012Validator
from tests.spec.requirement import requirement
from tests.typed.shop import Shop, served

import requite

T = TypeVar("T")


class Address(pydantic.BaseModel):
    street: str


class Customer(pydantic.BaseModel):
    name: str = pydantic.Field(min_length=1)
    address: Address


@dataclass
class Visit:
    at: datetime
    by: Customer


class Place(TypedDict, total=False):
    lines: list[str]
    visits: dict[str, Visit]


def described(service: requite.Service) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(msgspec.json.encode(service.describe()))
    for method in told["methods"]:
        for schema in (method["input"], method["output"], *(e["data"] for e in method["errors"])):
            Draft202012Validator.check_schema({**schema, "$defs": told["$defs"]})
    return told


@requirement("typed:describe", "typed:description")
async def test_a_service_describes_itself() -> None:
    shop = Shop(version="2.1", codec="msgpack")
    async with served(shop.service) as client:
        told = json.loads((await client.call(b"", service="orders.v2.describe")).body)
        asked = await client.call(b"orders.v2", service="mmi.describe")
    assert json.loads(asked.body) == told
    assert told == described(shop.service)
    assert {key: told[key] for key in ("requite", "service", "version", "prefix", "codec")} == {
        "requite": 1,
        "service": "orders",
        "version": "2.1",
        "prefix": "orders.v2",
        "codec": "msgpack",
    }
    assert told["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    price, slow, ping, raw, watch, _ = told["methods"]
    assert price == {
        "name": "price",
        "address": "orders.v2.price",
        "doc": "Price an order.",
        "parameter": "order",
        "input": {"$ref": "#/$defs/Order"},
        "output": {"$ref": "#/$defs/Quote"},
        "partial": False,
        "errors": [
            {
                "name": "OutOfStock",
                "doc": "There is too little of it.",
                "data": {"$ref": "#/$defs/OutOfStock"},
            },
            {"name": "Closed", "doc": "", "data": {"type": "null"}},
        ],
    }
    assert slow["output"] == {"type": "array", "items": {"$ref": "#/$defs/Quote"}}
    assert (ping["input"], ping["output"]) == ({"type": "null"}, {"type": "null"})
    assert raw["input"]["contentEncoding"] == "binary"
    assert watch["partial"]
    assert told["$defs"]["OutOfStock"]["properties"]["left"] == {"type": "integer", "default": 0}


def test_all_kinds_of_types_are_described() -> None:
    service = requite.Service("types")

    @service.method
    async def visit(place: Place) -> list[Customer]:
        return []

    told = described(service)
    assert set(told["$defs"]) == {"Place", "Visit", "Customer", "Address"}
    schema = {**told["methods"][0]["input"], "$defs": told["$defs"]}
    good = {"visits": {"a": {"at": "2026-01-01T00:00:00Z", "by": customer("Ann")}}}
    assert list(Draft202012Validator(schema).iter_errors(good)) == []
    bad = {"visits": {"a": {"at": "2026-01-01T00:00:00Z", "by": customer("")}}}
    [error] = Draft202012Validator(schema).iter_errors(bad)
    assert error.json_path == "$.visits.a.by.name"


class Tour(msgspec.Struct, array_like=True, tag="tour"):
    start: Annotated[datetime, msgspec.Meta(description="at the door")]


class Stop(NamedTuple):
    at: time


class Trip(msgspec.Struct, Generic[T], rename="camel"):
    when_at: datetime | None
    each: dict[str, list[tuple[int, time]]]
    other: T
    via: Tour | None = None
    stop: Stop | None = None
    note: str = ""
    closing: Annotated[time, msgspec.Meta(tz=False)] = time(18)


class Model(pydantic.BaseModel):
    when: datetime


def test_times_have_formats_wherever_they_are() -> None:
    service = requite.Service("types")

    @service.method
    async def visit(place: Place) -> Trip[datetime]:
        raise NotImplementedError

    @service.method
    async def model(time: time) -> list[Model | None]:
        return []

    told = described(service)
    whole, plain = {"type": "string", "format": "date-time"}, {"type": "string", "format": "time"}
    definitions = told["$defs"]
    assert definitions["Visit"]["properties"]["at"] == whole
    assert definitions["Tour"]["prefixItems"][1] == {**whole, "description": "at the door"}
    assert definitions["Stop"]["prefixItems"] == [plain]
    trip = definitions["Trip_datetime_"]["properties"]
    assert trip["whenAt"]["anyOf"] == [whole, {"type": "null"}]
    assert trip["each"]["additionalProperties"]["items"]["prefixItems"][1] == plain
    assert trip["other"] == whole
    assert trip["note"] == {"type": "string", "default": ""}
    assert trip["closing"]["format"] == "partial-time"
    assert definitions["Model"]["properties"]["when"] == {**whole, "title": "When"}
    assert told["methods"][1]["input"] == plain


def customer(name: str) -> dict[str, Any]:
    return {"name": name, "address": {"street": "Main"}}


async def test_models_of_pydantic_are_messages() -> None:
    service = requite.Service("models")

    @service.method
    async def greet(customer: Customer) -> Visit:
        return Visit(datetime(2026, 1, 1), customer)

    async with served(service) as client:
        reply = await client.call(json.dumps(customer("Ann")).encode(), service="models.greet")
        assert json.loads(reply.body) == {"at": "2026-01-01T00:00:00", "by": customer("Ann")}
        body = json.dumps({"name": "Ann", "address": {"street": 7}}).encode()
        try:
            await client.call(body, service="models.greet")
        except requite.RemoteFailure as failure:
            told = json.loads(str(failure))
        assert (told["error"], told["path"]) == ("BadRequest", "$.address.street")
        assert "string" in told["reason"]
