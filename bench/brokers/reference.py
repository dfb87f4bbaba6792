"""The logic of a plain MDP 0.2 broker (18/MDP): dispatch and liveness, without I/O.

The poller broker and the asyncio broker share it, and differ only in how they wait, receive and
send. It does what the RFC requires and no more: a service exists from its first worker or request;
the worker that waited longest gets the next request; requests queue while all workers are busy;
idle workers get one heartbeat per second, and are dropped after three silent ones. It has no
retries, no expiry and no counters.

It is as fast as a competent user would write it: frames are forwarded unchanged, nothing is looked
up twice, and periodic work is done once a second, not once per message.
"""

from __future__ import annotations

from collections import deque

CLIENT, WORKER = b"MDPC02", b"MDPW02"
CLIENT_REQUEST, CLIENT_PARTIAL, CLIENT_FINAL = b"\x01", b"\x02", b"\x03"
READY, REQUEST, PARTIAL, FINAL, HEARTBEAT, DISCONNECT = (bytes([n]) for n in range(1, 7))
HEARTBEAT_S = 1.0
LIVENESS = 3

Frames = list[bytes]


class Worker:
    """A worker that sent READY. It is in its service's waiting list exactly while it is `idle`."""

    __slots__ = ("address", "expires_at", "idle", "service")

    def __init__(self, address: bytes, service: Service) -> None:
        self.address = address
        self.service = service
        self.expires_at = 0.0
        self.idle = False


class Service:
    """A service: requests that wait for workers, or workers that wait for requests."""

    __slots__ = ("name", "requests", "waiting")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.requests: deque[tuple[bytes, Frames]] = deque()
        self.waiting: deque[Worker] = deque()


class Broker:
    """Frames in, as a ROUTER receives them; a list of messages out, as a ROUTER sends them."""

    def __init__(self) -> None:
        self.services: dict[bytes, Service] = {}
        self.workers: dict[bytes, Worker] = {}

    def handle(self, frames: Frames, now: float) -> list[Frames]:
        """Handle a message of a peer; return the messages to send. Drop malformed messages."""
        if len(frames) < 3:
            return []
        header = frames[1]
        if header == WORKER:
            return self._from_worker(frames, now)
        if header == CLIENT and len(frames) > 4 and frames[2] == CLIENT_REQUEST:
            return self._from_client(frames)
        return []

    def tick(self, now: float) -> list[Frames]:
        """Do the periodic work of a heartbeat interval."""
        for worker in [w for w in self.workers.values() if w.expires_at <= now]:
            self._forget(worker)
        idle = (w.address for w in self.workers.values() if w.idle)
        return [[address, WORKER, HEARTBEAT] for address in idle]

    def _from_client(self, frames: Frames) -> list[Frames]:
        service = self._service(frames[3])
        if not service.waiting:
            service.requests.append((frames[0], frames[4:]))
            return []
        worker = service.waiting.popleft()
        worker.idle = False
        return [[worker.address, WORKER, REQUEST, frames[0], b"", *frames[4:]]]

    def _from_worker(self, frames: Frames, now: float) -> list[Frames]:
        address, _, command = frames[:3]
        worker = self.workers.get(address)
        if worker is None:
            if command == READY and len(frames) == 4:
                return self._join(address, frames[3], now)
            return [] if command == DISCONNECT else [[address, WORKER, DISCONNECT]]
        worker.expires_at = now + HEARTBEAT_S * LIVENESS
        if command == FINAL and len(frames) > 5 and not worker.idle:
            reply = [frames[3], CLIENT, CLIENT_FINAL, worker.service.name, *frames[5:]]
            return [reply, *self._free(worker)]
        if command == PARTIAL and len(frames) > 5 and not worker.idle:
            return [[frames[3], CLIENT, CLIENT_PARTIAL, worker.service.name, *frames[5:]]]
        if command == HEARTBEAT:
            return []
        self._forget(worker)
        return [] if command == DISCONNECT else [[address, WORKER, DISCONNECT]]

    def _join(self, address: bytes, name: bytes, now: float) -> list[Frames]:
        worker = self.workers[address] = Worker(address, self._service(name))
        worker.expires_at = now + HEARTBEAT_S * LIVENESS
        return self._free(worker)

    def _free(self, worker: Worker) -> list[Frames]:
        """Give the worker the oldest request, or put it at the end of the waiting list."""
        service = worker.service
        if service.requests:
            client, body = service.requests.popleft()
            worker.idle = False
            return [[worker.address, WORKER, REQUEST, client, b"", *body]]
        worker.idle = True
        service.waiting.append(worker)
        return []

    def _forget(self, worker: Worker) -> None:
        del self.workers[worker.address]
        if worker.idle:
            worker.service.waiting.remove(worker)

    def _service(self, name: bytes) -> Service:
        service = self.services.get(name)
        if service is None:
            service = self.services[name] = Service(name)
        return service
