"""Dispatch: a lane per service, windows, and the check whether a service has workers.

A lane is *usable* for `check_every_s` after its service was seen: the broker confirmed it, or a
reply came. After that, if requests wait, the broker is asked once for the whole lane. A request
that could not be delivered does not count as tried.

Owners take turns in each lane, and no owner can fill the window: it may have three times as many
requests in flight as there are free slots. Alone, it gets three quarters of the window; the rest is
free for the next owner, which leaves a quarter of that again.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

from requite.core.timers import Timers
from requite.engine import Effect, Load, Rng, Submit
from requite.errors import CallError
from requite.protocols.titanic.policy import TitanicPolicy
from requite.protocols.titanic.requests import SENT, WAITING, DurableRequest, Lane, Owner
from requite.protocols.titanic.tickets import ForDispatch
from requite.protocols.titanic.wire import MMI_SERVICE, check_service, encode_ticket
from requite.request import Reply

_NOT_FOUND: Final = b"404"
_SHRINK_FLOOR: Final = 64
_SHARE: Final = 3  # of an owner, in multiples of the free slots


class Dispatcher:
    """Sends waiting requests, as far as windows and services allow."""

    def __init__(
        self,
        policy: TitanicPolicy,
        rng: Rng,
        timers: Timers[object],
        emit: Callable[[Effect], None],
    ) -> None:
        self.halted = False
        self.sent = 0
        self.lanes: dict[bytes, Lane] = {}
        self._policy = policy
        self._rng = rng
        self._timers = timers
        self._emit = emit
        self._ready: dict[Lane, None] = {}  # lanes that may have requests to send, round robin

    def lane(self, name: bytes) -> Lane:
        """Return the lane of a service. Raises `RemoteViolation` for an invalid service name."""
        lane = self.lanes.get(name)
        if lane is None:
            check_service(name)
            lane = self.lanes[name] = Lane(name)
        return lane

    def stored_lane(self, name: bytes) -> Lane:
        """Return the lane of a service whose name was checked when it was stored."""
        return self.lanes.get(name) or self.lanes.setdefault(name, Lane(name))

    def maybe_drop(self, lane: Lane, now: float) -> None:
        """Drop an empty lane, but only after its service check has expired: otherwise each lone
        request would cost a check."""
        if lane.open or lane.asking:
            return
        if now < lane.usable_until < inf:
            if lane not in self._timers:
                self._timers.set(lane, lane.usable_until)
        elif lane not in self._timers:
            self._ready.pop(lane, None)
            self.lanes.pop(lane.name, None)

    # --- waiting requests -------------------------------------------------------------------------
    def enqueue(self, request: DurableRequest, lane: Lane) -> None:
        """Queue a request."""
        request.state = WAITING
        lane.queue.push(request.owner, request)
        self._ready[lane] = None

    def rest(self, request: DurableRequest, until: float) -> None:
        """Back off: queue a request at a later instant."""
        request.state = WAITING
        self._timers.set(request, until)

    def withdraw(self, request: DurableRequest, lane: Lane) -> None:
        """Remove a waiting request, which was closed."""
        self._timers.clear(request)
        if lane.queue.length > max(_SHRINK_FLOOR, 2 * lane.open):
            lane.queue.retain(_waits)

    def forget_withdrawn(self) -> None:
        """Remove from all queues the requests that do not wait any more."""
        for lane in self.lanes.values():
            lane.queue.retain(_waits)

    def pump(self, now: float) -> None:
        """Send what can be sent, one request per lane in turn."""
        ready, window = self._ready, self._policy.window
        limited: list[Lane] = []  # by the shares of owners, which only shrink meanwhile
        while ready and self.sent < window and not self.halted:
            lane = next(iter(ready))
            del ready[lane]
            if not self._may_send_to(lane, now):
                continue
            if (request := self._next(lane)) is not None:
                ready[lane] = None
                self._send(request, lane, now)
            elif lane.queue.length:
                limited.append(lane)
        ready.update(dict.fromkeys(limited))

    def _may_send_to(self, lane: Lane, now: float) -> bool:
        if not lane.queue.length or lane.sent >= self._policy.service_window:
            return False
        if now >= lane.usable_until:
            self._maybe_ask(lane, now)
            return False
        return True

    def _next(self, lane: Lane) -> DurableRequest | None:
        """Remove and return the next request of a lane whose owner has not used up its share."""
        request = lane.queue.pop(self._has_share)
        while request is not None and request.state is not WAITING:
            request = lane.queue.pop(self._has_share)
        return request

    def _has_share(self, owner: Owner) -> bool:
        return owner.sent < _SHARE * (self._policy.window - self.sent)

    def _send(self, request: DurableRequest, lane: Lane, now: float) -> None:
        request.state = SENT
        lane.sent += 1
        request.owner.sent += 1
        self.sent += 1
        if request.frames is None:
            self._emit(Load(ForDispatch(request), request.location))
        else:
            self.submit(request, lane, now)

    def submit(self, request: DurableRequest, lane: Lane, now: float) -> None:
        """Send a request to the broker. Its ticket is its idempotency key, so a worker can
        recognise a repeated request."""
        due_at = now + self._policy.attempt_timeout_s
        frames = request.frames or (b"",)
        key = encode_ticket(request.uuid)
        owner = request.owner.name
        asked = Submit(request, lane.text, frames, due_at, True, key, False, owner, request.trace)
        request.asked = asked
        self._emit(request.asked)

    def free(self, request: DurableRequest, lane: Lane) -> None:
        """Release the window slots of a request whose attempt has ended."""
        request.asked = None
        lane.sent -= 1
        request.owner.sent -= 1
        self.sent -= 1
        self._ready[lane] = None

    # --- service checks ---------------------------------------------------------------------------
    def seen(self, lane: Lane, now: float) -> None:
        """Record that a service has workers."""
        lane.usable_until = now + self._policy.check_every_s

    def put_back(self, request: DurableRequest, lane: Lane, now: float) -> None:
        """Requeue a request that did not reach a worker, and pause its service."""
        request.state = WAITING
        lane.queue.push_back(request.owner, request)
        self.leave_alone(lane, now)

    def leave_alone(self, lane: Lane, now: float) -> None:
        """Send nothing to a service until the next service check, after a pause."""
        lane.usable_until = -inf
        if not lane.asking:
            self._timers.set(lane, now + self._pause_s())

    def due(self, lane: Lane, now: float) -> None:
        """Handle the end of a pause: check the service again or send to it; drop an empty lane."""
        if not lane.open:
            self.maybe_drop(lane, now)
            return
        if not self._policy.check_service:
            self.seen(lane, now)
        self._ready[lane] = None

    def _maybe_ask(self, lane: Lane, now: float) -> None:
        if lane.asking or lane in self._timers:
            return
        if not self._policy.check_service:
            lane.usable_until = inf
            self._ready[lane] = None
            return
        lane.asking = True
        due_at = now + max(self._policy.check_every_s, 1.0)
        self._emit(Submit(lane, MMI_SERVICE, [lane.name], due_at))

    def service_checked(self, lane: Lane, outcome: Reply | CallError, now: float) -> None:
        """Handle the broker's answer to a service check.

        8/MMI has 200, 404 and 501. Any answer but 404 counts as present: a request that is then
        sent in vain is still stored.
        """
        lane.asking = False
        if isinstance(outcome, CallError) or outcome.body.startswith(_NOT_FOUND):
            self.leave_alone(lane, now)
        else:
            self.seen(lane, now)
            self._ready[lane] = None
        self.maybe_drop(lane, now)

    def _pause_s(self) -> float:
        return self._policy.check_every_s * (1 - 0.5 * self._policy.jitter * self._rng())


def _waits(request: DurableRequest) -> bool:
    return request.state is WAITING
