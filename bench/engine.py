"""What rights and quotas cost the broker's engine alone: `python -m bench.engine`.

No socket and no other process: requests and replies are fed to the engine in batches, as reads of
64 KiB have them, with 64 requests in flight at four workers. The variants take turns, so that a
slow minute of the machine affects all; the least of many short runs is the cost without the others
on the machine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter, process_time_ns

from bench import builds, machine, page, quiet
from bench.quiet import Quiet
from requite.engine import PeerJoined, ReadInTurn, Received, Send
from requite.principal import Principal, Quota, Rights
from requite.protocols.majordomo.broker import MajordomoBroker
from requite.protocols.majordomo.dialects import by_version
from requite.protocols.majordomo.wire import FEATURES, ClientRequest, Ready, WorkerFinal

IN_FLIGHT = 64
WORKERS = 4
CAPACITY = 16
BATCHES = 32  # per run
_WARM_UP = 5  # rounds
BODY = b"hello world"
CALL_ID = b"a client" + bytes(8)
DIALECT = by_version("0.3")
RIGHTS = Rights(call=("price", "pay.*"), serve=("pay.*",))
QUOTA = Quota(
    bytes=64 << 20,
    connections=50,
    requests=10_000,
    requests_per_s=10_000_000,
    services=20,
    groups=100,
)
VARIANTS = {
    "no access file": Principal(),
    "access file": Principal("shop", RIGHTS),
    "access file and quota": Principal("shop", RIGHTS, QUOTA),
}


class Bench:
    """A broker with one client and its workers; `run` returns the time per request in us."""

    def __init__(self, principal: Principal) -> None:
        self._broker = MajordomoBroker()
        self._numbers = count(1)
        self._join("client", principal)
        for number in range(WORKERS):
            worker = Principal(principal.name, principal.rights)
            self._join(f"w{number}", worker)
            ready = Ready(b"pay.card", CAPACITY, 1000, 30_000, b"a worker")
            self._feed(f"w{number}", [DIALECT.encode(ready)])

    def run(self) -> float:
        """Feed requests and their replies."""
        spent_ns = 0
        for _ in range(BATCHES):
            requests = [self._request(next(self._numbers)) for _ in range(IN_FLIGHT)]
            started = process_time_ns()
            effects = self._feed("client", requests)
            spent_ns += process_time_ns() - started
            replies: dict[object, list[list[bytes]]] = {}
            for effect in effects:
                if isinstance(effect, ReadInTurn):  # after the first messages of the client
                    continue
                assert isinstance(effect, Send)
                dispatch_id = int.from_bytes(effect.message[0][7:15], "big")
                final = DIALECT.encode(WorkerFinal(b"", [BODY], dispatch_id, 0))
                replies.setdefault(effect.peer, []).append(list(final))
            answered = 0
            started = process_time_ns()
            for peer, messages in replies.items():
                answered += len(self._feed(peer, messages))
            spent_ns += process_time_ns() - started
            assert answered == IN_FLIGHT, answered
        return spent_ns / BATCHES / IN_FLIGHT / 1000

    def _request(self, number: int) -> list[bytes]:
        command = ClientRequest(b"pay.card", [BODY], number, 30_000, 0, b"", CALL_ID)
        return list(DIALECT.encode(command))

    def _join(self, peer: str, principal: Principal) -> None:
        joined = PeerJoined(peer, peer.encode(), None, principal, frozenset(FEATURES))
        self._broker.handle([joined], perf_counter())

    def _feed(self, peer: object, messages: list[list[bytes]]) -> list[object]:
        return list(self._broker.handle([Received(peer, messages)], perf_counter()))


def main(arguments: Sequence[str]) -> int:
    """Print the cost of each variant, and how much more than the first one it is."""
    given = parse(arguments)
    calm = Quiet(given.busy)
    times = calm.take(partial(measure, given.rounds))
    text = "\n\n".join(
        [
            f"Made by `{builds.shown('bench.engine', arguments)}`: {given.rounds} rounds."
            f" {calm.words()}",
            page.sentence(machine.facts()),
            table(times),
        ]
    )
    print(text)
    if given.docs:
        page.write(given.docs, "engine", text, maker="bench")
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.engine", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rounds", type=int, default=200, help="runs of each variant (200)")
    parser.add_argument("--docs", type=Path, help="page to write the table to")
    quiet.add_option(parser)
    return parser.parse_args(arguments)


def measure(rounds: int) -> dict[str, list[float]]:
    """Return the times of each variant, in us per request."""
    benches = {name: Bench(principal) for name, principal in VARIANTS.items()}
    times: dict[str, list[float]] = {name: [] for name in benches}
    for number in range(rounds + _WARM_UP):
        for name, bench in benches.items():
            took_us = bench.run()
            if number >= _WARM_UP:
                times[name].append(took_us)
    return times


def table(times: dict[str, list[float]]) -> str:
    """Return a row per variant."""
    base = next(iter(times.values()))
    rows = []
    for name, taken in times.items():
        more = median(mine - other for mine, other in zip(taken, base, strict=True))
        least = min(taken) - min(base)
        rows.append(
            [name, f"{min(taken):.2f} ({least:+.2f})", f"{median(taken):.2f} ({more:+.2f})"]
        )
    first = next(iter(times))
    return page.table(["the engine alone", f"least, µs (more than {first})", "median, µs"], rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
