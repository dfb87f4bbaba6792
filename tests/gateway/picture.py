"""Take the picture of the page to try methods, for the documentation.

python -m tests.gateway.picture
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.gateway.rig import listening
from tests.gateway.test_page import METHOD, send
from tests.support.browser import browsing

_ROOT: Final = Path(__file__).parents[2]
_PICTURE: Final = _ROOT / "docs" / "how-to" / "http-door.png"
_SERVICE: Final = _ROOT / "docs" / "how-to" / "type-a-service.md"
_CALLS: Final = (
    ("orders.price", '{"sku": "apple", "count": 2}'),
    ("orders.watch", '{"sku": "apple", "count": 3}'),
)


async def main() -> None:
    """Serve the service of the documentation, make two calls on the page, and take the picture."""
    names: dict[str, Any] = {}
    program = re.findall(r"```python\n(.*?)```", _SERVICE.read_text(), flags=re.DOTALL)[0]
    exec(compile(program, "orders.py", "exec", dont_inherit=True), names)
    with TemporaryDirectory() as folder:
        async with listening(names["orders"]) as door, browsing(Path(folder)) as page:
            await page.open(door.server.url, 800)
            await page.until("document.querySelector('details')")
            for address, body in _CALLS:
                await send(page, address, body)
                await page.run(f"{METHOD.format(address)}.querySelector('textarea').rows = 2")
            height = await page.run("document.documentElement.scrollHeight")
            await page.resize(800, height)
            _PICTURE.write_bytes(await page.picture())


if __name__ == "__main__":
    asyncio.run(main())
