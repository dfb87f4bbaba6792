"""The stock of the shop: a database of articles, and of what each order has reserved."""

from __future__ import annotations

from api import Order, OutOfStock
from database import transaction

FILE = "stock.db"
TABLES = """
    CREATE TABLE IF NOT EXISTS articles (
        sku TEXT PRIMARY KEY, cents INTEGER NOT NULL, left INTEGER NOT NULL
    );
    CREATE TABLE IF NOT EXISTS reserved (
        key BLOB PRIMARY KEY, sku TEXT NOT NULL, count INTEGER NOT NULL
    );
    INSERT OR IGNORE INTO articles VALUES ('apple', 50, 1000), ('pear', 80, 20);
"""


def create() -> None:
    """Create the database if there is none."""
    with transaction(FILE) as database:
        database.executescript(TABLES)


def reserve(key: bytes, order: Order) -> int:
    """Reserve the pieces of an order, once for each key; return their price in cents."""
    with transaction(FILE) as database:
        values = {"key": key, "sku": order.sku, "count": order.count}
        new = database.execute("INSERT OR IGNORE INTO reserved VALUES (:key, :sku, :count)", values)
        if new.rowcount:
            database.execute("UPDATE articles SET left = left - :count WHERE sku = :sku", values)
        article = database.execute("SELECT cents, left FROM articles WHERE sku = :sku", values)
        cents, left = article.fetchone() or (0, -order.count)
        if left < 0:
            raise OutOfStock(order.sku, left + order.count)
        return int(cents) * order.count


def release(key: bytes) -> None:
    """Put the pieces back that an order has reserved."""
    with transaction(FILE) as database:
        gone = database.execute("DELETE FROM reserved WHERE key = ? RETURNING sku, count", (key,))
        for sku, count in gone.fetchall():
            database.execute("UPDATE articles SET left = left + ? WHERE sku = ?", (count, sku))
