"""Place an order. With the same key again it is the same order, which is paid once.

Arguments: the key of the order, the article, how many, and the card.
"""

from __future__ import annotations

import asyncio
import os
import sys

from api import CardDeclined, Order, Orders, OutOfStock

import requite

BROKER = os.environ.get("BROKER", "mdp://127.0.0.1:5555")


async def main(key: str, order: Order) -> None:
    """Place an order and print its receipt."""
    async with requite.AsyncClient(BROKER) as client:
        orders = client.bind(Orders, "orders")
        try:
            receipt = await orders.place(order, timeout=5, idempotency_key=key.encode())
            print(f"payment {receipt.payment}: {receipt.cents / 100:.2f} EUR")
        except OutOfStock as error:
            sys.exit(f"only {error.left} of {error.sku} left")
        except CardDeclined as error:
            sys.exit(f"the card of {error.card} was declined")
        except requite.BadRequest as error:
            sys.exit(f"wrong order: {error}")
        except requite.CallError as error:
            sys.exit(f"the order failed: {error}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Order(sys.argv[2], int(sys.argv[3]), sys.argv[4])))
