"""A client's calls for a user: those of a gateway, which has users of its own."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING

from requite.engine import Input, Submit

if TYPE_CHECKING:
    from requite.client.aio import AsyncClient


def acting_for(client: AsyncClient, user: str) -> AsyncClient:
    """Return a client whose calls are for a user, over the connection of `client`.

    If the broker knows users, it makes the calls with the rights of this one, and workers are told
    its name. Otherwise the calls are those of `client` itself. Do not close the returned client.
    """
    acting = copy(client)
    acting._submit = _naming(user, client._submit)
    acting._submit_soon = _naming(user, client._submit_soon)
    return acting


def _naming(user: str, submit: Callable[[Input], None]) -> Callable[[Input], None]:
    """Return a function that names the user of a call before it submits it."""
    name = user.encode()

    def submit_for_user(event: Input) -> None:
        if isinstance(event, Submit):
            event.principal = name
        submit(event)

    return submit_for_user
