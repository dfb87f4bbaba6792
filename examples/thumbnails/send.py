"""Send a customer's picture to the pool, and write each thumbnail when it arrives.

Arguments: the URL of the pool, the customer, and the file of the picture.
"""

from __future__ import annotations

import sys
from io import BytesIO
from pathlib import Path

from PIL import Image

import requite


def main(url: str, customer: str, file: Path) -> None:
    """Write the thumbnails of a file beside it."""
    with requite.Client(url, service=customer, timeout=60) as client:
        for part in client.stream(file.read_bytes()):
            if isinstance(part, requite.Partial):
                write(part.body, file)


def write(thumbnail: bytes, file: Path) -> None:
    """Write one thumbnail of a file, with its size in its name."""
    with Image.open(BytesIO(thumbnail)) as picture:
        width, height = picture.size
    path = file.with_name(f"{file.stem}-{max(width, height)}.jpg")
    path.write_bytes(thumbnail)
    print(f"{path.name}: {width} × {height}", flush=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
    except (requite.CallError, OSError) as error:
        sys.exit(f"{sys.argv[3]}: {error}")
