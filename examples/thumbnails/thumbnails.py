"""Thumbnails of pictures, as one customer wants them.

A worker of the pool serves the customer that `WORKER_KEY` names. It gets the bytes of a picture,
and sends each thumbnail as soon as it is made, the smallest one first.
"""

from __future__ import annotations

import logging
import os
import tomllib
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont, ImageOps

import requite

PIXELS_MAX = 80_000_000  # a small file can hold a picture that fills the memory
WATERMARK_SIZE_MIN = 200  # a watermark on a smaller thumbnail would not be legible

Image.MAX_IMAGE_PIXELS = None  # Pillow's own limit is a warning; ours is an error for the caller
log = logging.getLogger("thumbnails")
log.setLevel(logging.INFO)


class Customer(NamedTuple):
    """What one customer has ordered."""

    sizes: list[int]
    watermark: str


def customer_of(key: str) -> Customer | None:
    """Return the customer with this key, or None."""
    customers = tomllib.loads(Path("customers.toml").read_text(encoding="utf-8"))
    return Customer(**customers[key]) if key in customers else None


KEY = os.environ["WORKER_KEY"]
CUSTOMER = customer_of(KEY)


@requite.service("thumbnails")
def thumbnails(request: requite.Request) -> Iterator[bytes]:
    """Yield the thumbnails of a picture, as JPEG."""
    if CUSTOMER is None:
        raise requite.RemoteFailure(f"{KEY!r} is not a customer")
    picture = picture_in(request.body)
    log.info("%s: %d bytes, %d × %d pixels", KEY, len(request.body), *picture.size)
    for size in CUSTOMER.sizes:
        yield thumbnail(picture, size, CUSTOMER.watermark)


def picture_in(data: bytes) -> Image.Image:
    """Return the picture in the bytes of a file; refuse one that is damaged or too large."""
    try:
        with Image.open(BytesIO(data)) as picture:
            if picture.width * picture.height > PIXELS_MAX:
                raise requite.RemoteFailure(
                    f"the picture has {picture.width} × {picture.height} pixels;"
                    f" the maximum is {PIXELS_MAX:,}"
                )
            return ImageOps.exif_transpose(picture).convert("RGB")
    except (OSError, SyntaxError, ValueError) as error:
        log.warning("%s: %d bytes, not a picture: %s", KEY, len(data), error)
        raise requite.RemoteFailure("this is not a picture, or it is damaged") from error


def thumbnail(picture: Image.Image, size: int, watermark: str) -> bytes:
    """Return a picture reduced to `size` pixels on its longer side, as JPEG."""
    reduced = picture.copy()
    reduced.thumbnail((size, size))
    if size >= WATERMARK_SIZE_MIN:
        font = ImageFont.load_default(size / 20)
        where = (size / 40, reduced.height - size / 40)
        draw = ImageDraw.Draw(reduced)
        draw.text(where, watermark, "white", font, "ls", stroke_width=1, stroke_fill="black")
    jpeg = BytesIO()
    reduced.save(jpeg, "JPEG")
    return jpeg.getvalue()
