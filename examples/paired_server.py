"""A server of your own in a fail-over pair: it answers lines over TCP, or closes the connection.

    A=tcp://127.0.0.1:7101 B=tcp://127.0.0.1:7102
    python examples/paired_server.py primary 127.0.0.1:7001 $A $B &
    python examples/paired_server.py backup 127.0.0.1:7002 $B $A &
    echo hello | nc 127.0.0.1 7001
    requite pair status $A

The addresses are: the one for clients, the one for the other server of the pair, and the address of
that server. The reply to each line has the role and the epoch of the server. A client whose
connection is closed tries the other server. SIGTERM first hands over to the other server.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from functools import partial

from requite.pair import Pair, PairView


async def answer(pair: Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the lines of one client while this server is active."""
    try:
        while line := await reader.readline():
            if not pair.vote():  # the client's request is a vote: it may have made us active
                break
            reply = f"{pair.role.name.lower()} {pair.view.epoch} ".encode() + line
            if not pair.serves:  # after a pause of this process the other one may have taken over
                break
            writer.write(reply)
            await writer.drain()
    except ConnectionError:
        print("a client disconnected", file=sys.stderr)
    finally:
        writer.close()


def print_state(view: PairView) -> None:
    """Print the new state."""
    print(f"{view.role.name.lower()} is {view.state.name.lower()}, epoch {view.epoch}", flush=True)


async def main(arguments: Sequence[str]) -> None:
    """Serve until SIGTERM."""
    given = parse(arguments)
    pair = Pair(
        given.role,
        bind=given.bind,
        peer=given.peer,
        heartbeat=given.heartbeat,
        on_change=print_state,
    )
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with pair:
        host, _, port = given.clients.rpartition(":")
        server = await asyncio.start_server(partial(answer, pair), host, int(port))
        host, port = server.sockets[0].getsockname()
        print(f"listening on {host}:{port}", flush=True)
        async with server:
            await stopped.wait()
            await pair.drain()


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("role", choices=("primary", "backup"))
    parser.add_argument("clients", metavar="HOST:PORT", help="address for clients")
    parser.add_argument("bind", metavar="ADDRESS", help="address for the other server")
    parser.add_argument("peer", metavar="ADDRESS", help="address of the other server")
    parser.add_argument("--heartbeat", type=float, default=1.0, metavar="SECONDS")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
