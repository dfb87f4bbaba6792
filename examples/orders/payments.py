"""Payments: charges cards. The database has their balances, and each payment with its key.

A repeated request gets the stored reply (`Dedup`). If the process died while it charged a card, the
repetition runs (`in_doubt="run"`), and finds the payment by its key, or no change at all: the
payment and the new balance are one transaction.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from api import CardDeclined, Charge, Receipt
from database import transaction
from logs import logged

import requite

FILE = "payments.db"
TABLES = """
    CREATE TABLE IF NOT EXISTS cards (card TEXT PRIMARY KEY, cents INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS payments (
        number INTEGER PRIMARY KEY, key BLOB UNIQUE, card TEXT NOT NULL, cents INTEGER NOT NULL
    );
    INSERT OR IGNORE INTO cards VALUES ('ann', 100000), ('bob', 500);
"""


@asynccontextmanager
async def life() -> AsyncGenerator[None]:
    """Create the database before the worker serves."""
    with transaction(FILE) as database:
        database.executescript(TABLES)
    yield


payments = requite.Service("payments", lifespan=life, middleware=[logged])


@payments.method(
    errors=[CardDeclined], idempotent=requite.Dedup("payments-replies", in_doubt="run")
)
def charge(charge: Charge, context: requite.Context) -> Receipt:
    """Charge a card, once for each idempotency key."""
    key = context.idempotency_key
    with transaction(FILE) as database:
        done = database.execute("SELECT number, cents FROM payments WHERE key = ?", (key,))
        if payment := done.fetchone():
            return Receipt(*payment)
        paid = database.execute(
            "UPDATE cards SET cents = cents - :cents WHERE card = :card AND cents >= :cents",
            {"card": charge.card, "cents": charge.cents},
        )
        if not paid.rowcount:
            raise CardDeclined(charge.card)
        made = database.execute(
            "INSERT INTO payments (key, card, cents) VALUES (?, ?, ?) RETURNING number, cents",
            (key, charge.card, charge.cents),
        )
        return Receipt(*made.fetchone())
