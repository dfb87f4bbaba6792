"""The client's side of `mmi.list`."""

from __future__ import annotations

import json
from typing import Final

from requite.errors import RemoteViolation

MMI_LIST: Final = "mmi.list"


def service_names(listing: bytes) -> list[str]:
    """Return the names of the services in a broker's reply to `mmi.list`.

    Raises `RemoteViolation` for another reply.
    """
    try:
        return [str(row["service"]) for row in json.loads(listing)]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise RemoteViolation(
            f"the broker answers mmi.list with {listing[:40]!r}: it is not a requite broker; name"
            " the service after the URL"
        ) from error
