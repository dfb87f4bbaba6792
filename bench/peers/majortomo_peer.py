"""PyPI's `majortomo`. Its client is blocking: one thread per call in flight."""

from __future__ import annotations

from collections.abc import Callable

import majortomo

from bench.job import SERVICE, Job
from bench.peers import play, ready
from bench.peers.measure import CALL_TIMEOUT_S, measure_threads


def call(job: Job) -> None:
    """Measure `client.send(...)` followed by `client.recv_all_as_list(...)`."""

    def connect() -> Callable[[bytes], bytes]:
        client = majortomo.Client(f"tcp://127.0.0.1:{job.port}")
        client.connect()

        def ask(body: bytes) -> bytes:
            client.send(SERVICE, body)
            return b"".join(client.recv_all_as_list(timeout=CALL_TIMEOUT_S))

        return ask

    measure_threads(job, connect)


def serve(job: Job) -> None:
    """Answer every request with its frames."""
    requests = majortomo.WorkerRequestsIterator(
        majortomo.Worker(f"tcp://127.0.0.1:{job.port}", SERVICE)
    )
    ready()
    for frames in requests:
        requests.send_reply_final(frames)


if __name__ == "__main__":
    play(client=call, worker=serve)
