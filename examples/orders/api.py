"""What the two services take and return, and their errors. Services and callers share this file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Protocol, Unpack

from msgspec import Meta, Struct

import requite


class Order(Struct):
    """Some pieces of one article, and the card that pays for them."""

    sku: str
    count: Annotated[int, Meta(ge=1, le=100)]
    card: str


class Receipt(Struct):
    """The number of the payment for an order, and its amount."""

    payment: int
    cents: int


class Charge(Struct):
    """An amount, and the card that pays it."""

    card: str
    cents: Annotated[int, Meta(ge=1)]


@dataclass
class OutOfStock(Exception):
    """Fewer pieces are left than were ordered."""

    sku: str
    left: int


@dataclass
class CardDeclined(Exception):
    """The card is unknown, or has too little money."""

    card: str


class Orders(Protocol):
    """The service `orders`, as its callers see it."""

    @requite.raises(OutOfStock, CardDeclined)
    async def place(self, order: Order, **options: Unpack[requite.CallOptions]) -> Receipt: ...


class Payments(Protocol):
    """The service `payments`, as its callers see it."""

    @requite.raises(CardDeclined)
    async def charge(self, charge: Charge, **options: Unpack[requite.CallOptions]) -> Receipt: ...
