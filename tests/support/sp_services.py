"""Services and clients of SP for processes that tests kill.

    requite worker tests.support.sp_services:tells --bind sp+tcp://127.0.0.1:0
    python -m tests.support.sp_services service tcp://127.0.0.1:5560
    python -m tests.support.sp_services client tcp://127.0.0.1:5560 BODY

The last two are nng's. A service says `got BODY` for each request and answers with the body in
capitals; with SWALLOW set in its environment it never answers.
"""

from __future__ import annotations

import asyncio
import os
import sys

import pynng

import requite

SWALLOW = "SWALLOW"


def tell(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


@requite.service("tells")
async def tells(request: requite.Request) -> bytes:
    """Say what came; answer, or wait for ever and say when that is interrupted."""
    tell(f"got {request.body.decode()}")
    if SWALLOW in os.environ:
        try:
            await asyncio.Event().wait()
        finally:
            tell(f"abandoned {request.body.decode()}")
    return request.body.upper()


@requite.service("who")
async def who(request: requite.Request) -> bytes:
    """Tell the process that answers."""
    return str(os.getpid()).encode()


def nng_service(url: str) -> None:
    """Serve for ever."""
    with pynng.Rep0(listen=url) as socket:
        tell(f"listening on {url}")
        while True:
            body = socket.recv()
            tell(f"got {body.decode()}")
            if SWALLOW not in os.environ:
                socket.send(body.upper())


def nng_client(url: str, body: str) -> None:
    """Make one call."""
    with pynng.Req0(reconnect_time_min=20, reconnect_time_max=20) as socket:
        socket.dial(url, block=False)
        socket.send(body.encode())
        tell(f"reply {socket.recv().decode()}")


if __name__ == "__main__":
    {"service": nng_service, "client": nng_client}[sys.argv[1]](*sys.argv[2:])
