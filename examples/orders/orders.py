"""Orders: reserves the goods, and has the card charged by the service `payments`.

The whole order has one idempotency key and one deadline, and passes both on to the payment.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import stock
from api import CardDeclined, Charge, Order, OutOfStock, Payments, Receipt
from logs import logged

import requite

BROKER = os.environ.get("BROKER", "mdp://127.0.0.1:5555")


@asynccontextmanager
async def life() -> AsyncGenerator[Payments]:
    """Connect to the payments before the worker serves, and disconnect when it has closed.

    With `hold_back` the broker ends a call just before its deadline, so that an order learns
    whether its payment may have run.
    """
    stock.create()
    async with requite.AsyncClient(BROKER, hold_back=0.1) as client:
        yield client.bind(Payments, "payments")


orders = requite.Service("orders", version="1.0", lifespan=life, middleware=[logged])


@orders.method(
    errors=[OutOfStock, CardDeclined],
    idempotent=requite.Dedup("orders-replies", in_doubt="run"),
)
async def place(order: Order, context: requite.Context) -> Receipt:
    """Place an order, once for each idempotency key."""
    payments: Payments = context.state
    key = context.idempotency_key
    cents = await asyncio.to_thread(stock.reserve, key, order)
    try:
        return await payments.charge(
            Charge(order.card, cents), timeout=context.deadline, idempotency_key=key
        )
    except CardDeclined:
        await asyncio.to_thread(stock.release, key)
        raise
    except requite.CallError as error:
        if not error.may_have_executed:  # else the goods remain reserved until it is repeated
            await asyncio.to_thread(stock.release, key)
        raise
