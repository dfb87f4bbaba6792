"""A typed service that writes a line for each run of its method, to count the attempts."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path

from tests.typed.shop import Order, OutOfStock, Quote

import requite

RUNS = "REQUITE_TEST_RUNS"
orders = requite.Service("orders")


@orders.method(errors=[OutOfStock])
def price(order: Order) -> Quote:
    runs = Path(os.environ[RUNS])
    before = runs.read_text().split()
    with runs.open("a") as file:
        file.write(f"{order.sku}\n")
    if order.sku == "none":
        raise OutOfStock(order.sku, left=3)
    if order.sku == "flaky" and before.count("flaky") < 2:
        raise ValueError("not now")
    return Quote(Decimal(order.count) / 2)
