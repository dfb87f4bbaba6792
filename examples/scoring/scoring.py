"""The service: it scores payments by their risk."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated

import msgspec

import requite

BASE_RISK = {"CH": Decimal("0.01"), "FR": Decimal("0.02"), "BR": Decimal("0.05")}


class Payment(msgspec.Struct):
    amount: Decimal
    country: str
    hour: Annotated[int, msgspec.Meta(ge=0, le=23)]
    tags: list[str] = []


class Score(msgspec.Struct):
    risk: Decimal
    reasons: list[str]


@dataclass
class UnknownCountry(Exception):
    """The model has no data about payments from this country."""

    country: str


scoring = requite.Service("scoring", version="1.0")


@scoring.method(errors=[UnknownCountry])
async def score(payment: Payment) -> Score:
    """Score a payment: 0 is safe, 1 is fraud."""
    risk = BASE_RISK.get(payment.country)
    if risk is None:
        raise UnknownCountry(payment.country)
    reasons: list[str] = []
    if payment.amount >= 1000:
        risk *= 4
        reasons.append("large amount")
    if payment.hour < 6:
        risk *= 3
        reasons.append("at night")
    if "first" in payment.tags:
        risk += Decimal("0.1")
        reasons.append("first payment")
    return Score(min(risk, Decimal(1)), reasons)
