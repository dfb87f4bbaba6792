"""Fixtures of the tests with foreign peers: brokers, sockets and SP endpoints."""

from tests.support.live import broker, make_broker, processes, sockets, workers
from tests.support.sp_hand import hands
from tests.support.sp_live import loop
from tests.support.sp_nng import nng
from tests.support.sp_wires import certificates, places

__all__ = [
    "broker",
    "certificates",
    "hands",
    "loop",
    "make_broker",
    "nng",
    "places",
    "processes",
    "sockets",
    "workers",
]
