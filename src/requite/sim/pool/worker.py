"""Workers of a pool: programs with a real worker, whose handler does what the requests ask for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from requite.pool.manager.environment import environment_of
from requite.request import Request
from requite.sim.kernel.process import Ending
from requite.sim.pool.knobs import Task
from requite.sim.pool.ledger import reply_to
from requite.sim.pool.member import Member
from requite.worker.environment import place_of
from requite.worker.handler import service
from requite.worker.worker import Worker

if TYPE_CHECKING:
    from requite.sim.pool.stage import PoolStage

_GRACE_S: Final = 2.0  # may be shorter than RabbitMQ's sampling interval


class PoolWorker(Member):
    """A worker of the group of `key`; it is never restarted."""

    def __init__(
        self, name: str, stage: PoolStage, key: str, ended: Callable[[PoolWorker], None]
    ) -> None:
        super().__init__(name, stage, self._main)
        self.key = key
        self._ended = ended
        self._is_stopping = False

    async def _main(self) -> None:
        config = self.stage.config
        place = place_of(environment_of(config)(self.key, self.name))
        handler = service(config.pool.name)(self._serve)
        await Worker(place.url, handler, capacity=place.prefetch).serve()

    # --- life -------------------------------------------------------------------------------------
    def stop(self) -> None:
        """Finish the requests in hand, and exit; else it is killed."""
        if not self.life:
            self.retired = True
            self._ended(self)
        elif not self._is_stopping:
            self._is_stopping = True
            self.drain()
            self.world.after(_GRACE_S, self._kill)

    def _kill(self) -> None:
        self.kill(self.rng.random() * self.stage.knobs.notice_s)

    def _end(self, what: Ending) -> None:
        super()._end(what)
        self.retired = True
        self._ended(self)

    # --- requests ---------------------------------------------------------------------------------
    async def _serve(self, request: Request) -> bytes:
        record = self.stage.ledger.request_in(request.body)
        if record is None:  # garbage
            return b""
        self.stage.ledger.runs(record)
        knobs = self.stage.knobs
        match record.task:
            case Task.POISON:
                await asyncio.sleep(knobs.service_s)
                self.kill(knobs.notice_s)
                await asyncio.get_running_loop().create_future()
            case Task.STALL:
                await asyncio.get_running_loop().create_future()
            case Task.FAIL:
                raise ValueError(f"{record} fails")
            case Task.REQUEUE if request.attempt == 1:
                raise asyncio.CancelledError
        await asyncio.sleep(knobs.service_s)
        return reply_to(record)
