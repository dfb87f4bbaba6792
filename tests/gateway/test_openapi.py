"""The document of OpenAPI that a gateway serves."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import jsonschema
import msgspec
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator
from tests.gateway.rig import opened
from tests.typed.shop import Shop

import requite


class Cat(msgspec.Struct, tag="cat"):
    lives: int


class Dog(msgspec.Struct, tag="dog"):
    """A dog."""

    friends: list[Dog | Cat] = []
    size: Literal["s", "m"] = "s"
    more: dict[str, bytes] = {}
    born: datetime | None = None


def zoo() -> requite.Service:
    service = requite.Service("zoo", version="2.1", codec="msgpack")

    @service.method
    async def feed(animal: Dog | Cat) -> list[Dog]:
        """Feed an animal.

        Only in the morning.
        """
        raise NotImplementedError

    return service


async def document(**settings: Any) -> dict[str, Any]:
    async with opened(Shop().service, zoo(), **settings) as door:
        answer = await door.get("/openapi.json")
        assert answer.status == 200
        found: dict[str, Any] = answer.said
        return found


async def test_it_is_valid() -> None:
    found = await document()
    errors = [error.message for error in OpenAPIV31SpecValidator(found).iter_errors()]
    assert errors == []
    broken = {**found, "paths": {"orders.price": {}}}
    assert list(OpenAPIV31SpecValidator(broken).iter_errors())


async def test_each_method_is_there_with_what_it_takes_and_returns() -> None:
    paths = (await document())["paths"]
    assert sorted(paths) == [
        "/orders.listing", "/orders.ping", "/orders.price", "/orders.raw", "/orders.slow",
        "/orders.watch", "/zoo.v2.feed",
    ]  # fmt: skip
    price = paths["/orders.price"]["post"]
    [(kind, body)] = price["requestBody"]["content"].items()
    assert (kind, body["schema"]) == (
        "application/json",
        {"$ref": "#/components/schemas/orders.Order"},
    )
    assert price["summary"] == "Price an order."
    refused = price["responses"]["422"]["content"]["application/problem+json"]["schema"]["anyOf"]
    assert [each["title"] for each in refused] == ["OutOfStock", "Closed"]
    assert "text/event-stream" in paths["/orders.watch"]["post"]["responses"]["200"]["content"]
    assert "application/octet-stream" in paths["/orders.raw"]["post"]["requestBody"]["content"]
    assert paths["/zoo.v2.feed"]["post"]["description"] == "Only in the morning."


async def test_times_have_a_format() -> None:
    dog = (await document())["components"]["schemas"]["zoo.v2.Dog"]
    assert dog["properties"]["born"]["anyOf"][0] == {"type": "string", "format": "date-time"}


async def test_its_schemas_describe_real_messages() -> None:
    found = await document()

    def check(schema: Any, value: Any) -> None:
        jsonschema.Draft202012Validator({**schema, "components": found["components"]}).validate(
            value
        )

    feed = found["paths"]["/zoo.v2.feed"]["post"]["requestBody"]["content"]["application/json"]
    check(feed["schema"], {"type": "dog", "friends": [{"type": "cat", "lives": 9}]})
    with pytest.raises(jsonschema.ValidationError):
        check(feed["schema"], {"type": "dog", "friends": [{"type": "cow"}]})
    mapping = feed["schema"]["discriminator"]["mapping"]
    assert mapping["cat"] == "#/components/schemas/zoo.v2.Cat"
    async with opened(Shop().service) as door:
        for body in ({"sku": "none", "count": 1}, {"sku": "a", "count": "b"}):
            problem = (await door.post("orders.price", body)).said
            check(found["components"]["schemas"]["Problem"], problem)
        declared = found["paths"]["/orders.price"]["post"]["responses"]["422"]["content"]
        problem = (await door.post("orders.price", {"sku": "none", "count": 1})).said
        check(declared["application/problem+json"]["schema"], problem)
