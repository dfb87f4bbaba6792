"""SP services, clients and devices that tests run as processes and kill.

    python -m tests.support.sp_services ROLE ARGUMENT...

ROLE is a key of `ROLES`; the arguments are those of its function. A service prints `got BODY` for
each request and returns the body in capitals. With SWALLOW in its environment, it does not reply.
Services and devices print `listening` or `dialling` once they are ready.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Final

import requite

SWALLOW: Final = "SWALLOW"


def tell(text: str) -> None:
    """Print a line and flush stdout."""
    print(text, flush=True)


# --- endpoints of requite -------------------------------------------------------------------------
@requite.service("tells")
async def tells(request: requite.Request) -> bytes:
    """Print and answer a request; with SWALLOW, wait until cancelled and print `abandoned BODY`."""
    tell(f"got {request.body.decode()}")
    if SWALLOW in os.environ:
        try:
            await asyncio.Event().wait()
        finally:
            tell(f"abandoned {request.body.decode()}")
    return request.body.upper()


@requite.service("who")
async def who(request: requite.Request) -> bytes:
    """Return the process id."""
    return str(os.getpid()).encode()


def service(url: str) -> None:
    """Serve `tells`, listening at a URL."""
    requite.Worker(tells, bind=url).run(lambda: tell("listening"))


def dialling_service(url: str) -> None:
    """Serve `tells`, dialling a URL."""
    requite.Worker(url, tells).run(lambda: tell("dialling"))


def identity(url: str) -> None:
    """Serve `who`, listening at a URL."""
    requite.Worker(who, bind=url).run(lambda: tell("listening"))


def client(url: str, body: str) -> None:
    """Make one call, and print `reply BODY`."""
    with requite.Client(url) as client:
        tell(f"reply {client.call(body.encode()).body.decode()}")


def device(front: str, back: str) -> None:
    """Run a device that listens at its front and dials at its back."""
    requite.sp.Device(front=[front], connect_back=[back]).run(lambda: tell("listening"))


# --- endpoints of nng -----------------------------------------------------------------------------
def nng_service(url: str) -> None:
    """Serve like `tells`, listening at a URL."""
    import pynng

    with pynng.Rep0(listen=url) as socket:
        tell("listening")
        while True:
            body = socket.recv()
            tell(f"got {body.decode()}")
            if SWALLOW not in os.environ:
                socket.send(body.upper())


def nng_client(url: str, body: str) -> None:
    """Make one call, and print `reply BODY`."""
    import pynng

    with pynng.Req0(reconnect_time_min=20, reconnect_time_max=20) as socket:
        socket.dial(url, block=False)
        socket.send(body.encode())
        tell(f"reply {socket.recv().decode()}")


ROLES: Final = {
    each.__name__: each
    for each in (service, dialling_service, identity, client, device, nng_service, nng_client)
}

if __name__ == "__main__":
    ROLES[sys.argv[1]](*sys.argv[2:])
