"""The parameters of a Titanic run, drawn from its seed; printed before it begins."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from requite.protocols.titanic.policy import TitanicPolicy
from requite.sim.kernel.knobs import RunKnobs
from requite.titanic.store import StoreSettings


class Fate(StrEnum):
    """How a service handles one request."""

    ANSWER = "answer"
    LOSE_REPLY = "lose-reply"  # it runs, but no reply arrives
    LOSE_REQUEST = "lose-request"  # the connection breaks before it is sent
    FAIL = "fail"  # a negative reply
    DIE = "die"  # the worker crashes


@dataclass(frozen=True, slots=True, kw_only=True)
class TitanicKnobs(RunKnobs):
    """A run: `calls` requests are submitted in the first phase, of `faulty_s` seconds.

    Probabilities: `keyed_p`: a submission has an idempotency key; `close_p`: a user closes its
    request; `loss_p`, `late_p`: a message between users and Titanic is lost or delayed;
    `poison_p`: a request fails every time. Services draw from `fates` with `weights`. `owners`: the
    users belong to so many principals in turn, and a stranger tries their tickets; 0: the users
    have no principals.
    """

    # users
    keyed_p: float
    close_p: float
    close_early_p: float
    again_p: float
    poison_p: float
    body_size_max: int
    loss_p: float
    late_p: float
    latency_s: float
    # services
    services: tuple[str, ...]
    fates: tuple[Fate, ...]
    weights: tuple[int, ...]
    service_s: float
    # the policy
    attempts_max: int | None
    attempt_timeout_s: float
    backoff_s: float
    check_service: bool
    check_every_s: float
    window: int
    service_window: int
    key_window_s: float
    expire_s: float | None
    cache_bytes_max: int
    # the disk
    disk_s: float
    segment_size_bytes: int
    disk_segments_max: int | None
    compact_below: float
    owners: int = 0

    @property
    def policy(self) -> TitanicPolicy:
        """The policy of the engine; its notes are checked."""
        return TitanicPolicy(
            attempts_max=self.attempts_max,
            attempt_timeout_s=self.attempt_timeout_s,
            backoff_s=self.backoff_s,
            backoff_s_max=8 * self.backoff_s,
            check_service=self.check_service,
            check_every_s=self.check_every_s,
            window=self.window,
            service_window=self.service_window,
            key_window_s=self.key_window_s,
            expire_s=self.expire_s,
            cache_bytes_max=self.cache_bytes_max,
            drain_timeout_s=5.0,
            notes=True,
        )

    @property
    def store(self) -> StoreSettings:
        """The settings of the store."""
        size, segments = self.segment_size_bytes, self.disk_segments_max
        return StoreSettings(
            segment_size_bytes=size,
            disk_bytes_max=None if segments is None else segments * size,
            compact_below=self.compact_below,
        )
