"""Fixtures that connect two framings without a network."""

from collections.abc import Callable

import pytest
from tests.framing.logins import receive

from requite.framing import SocketType, Zmtp

Connect = Callable[..., tuple[Zmtp, Zmtp]]


def _shake_hands(left: Zmtp, right: Zmtp) -> None:
    to_left, to_right = right.opening(), left.opening()
    while to_left or to_right:
        assert receive(right, to_right) == []
        assert receive(left, to_left) == []
        to_left, to_right = right.output(), left.output()
    assert left.ready
    assert right.ready


@pytest.fixture(scope="session")
def shake_hands() -> Callable[[Zmtp, Zmtp], None]:
    return _shake_hands


@pytest.fixture(scope="session")
def connect() -> Connect:
    """Return a function that connects two framings of the given socket types; options apply to the
    first."""

    def _connect(
        own: SocketType = SocketType.ROUTER, peer: SocketType = SocketType.DEALER, **options: object
    ) -> tuple[Zmtp, Zmtp]:
        left, right = Zmtp(own, **options), Zmtp(peer)
        _shake_hands(left, right)
        return left, right

    return _connect
