"""Faults of the pool's demo, and how its manager recovers from them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from requite.cli.show.faults import count, since
from requite.cli.show.groups import Group
from requite.cli.show.pool import MANAGER, PoolRun
from requite.cli.show.run import POLL_S
from requite.errors import TransportError
from requite.testing.processes import ProcessFailed, State

_WITHIN_S: Final = 100.0
_ENOUGH: Final = 50  # answers that show that the pool serves without its manager
_WITHOUT_S: Final = 2.0  # time for these answers; calls to missing groups get none
_STOPPED_S: Final = 1.0
_QUEUES_WRITTEN_S: Final = 2.0  # RabbitMQ 3.10 writes a new queue to disk within half of this


async def kill_worker(run: PoolRun) -> None:
    """Kill a worker that has requests; the manager starts its successor."""
    group = await _next_group(run)
    before = group.worker
    group.kill()
    run.worker_kills += 1
    run.screen.note(f"worker of {group.key} killed (SIGKILL): RabbitMQ keeps its requests")
    began = time.monotonic()
    await _until(lambda: group.pid and group.worker != before, f"a worker of {group.key}")
    started = f"worker of {group.key} restarted by the manager {since(began)} later"
    answers = run.answers_of[group.key]  # includes the last ones of the killed worker
    await _until(
        lambda: run.answers_of[group.key] > answers or not run.outstanding,
        f"an answer of {group.key}",
    )
    run.screen.note(f"{started}, answers after {since(began)}")


async def stop_worker(run: PoolRun) -> None:
    """Freeze a worker (SIGSTOP) for a second; its connection stays open."""
    group = await _next_group(run)
    group.stop()
    began = time.monotonic()
    await asyncio.sleep(_STOPPED_S)
    group.resume()
    run.screen.note(
        f"worker of {group.key} stopped (SIGSTOP) for {since(began)}, resumed (SIGCONT)"
    )
    await run.answers(1)


async def kill_manager(run: PoolRun) -> None:
    """Kill the manager; running groups serve without it. Then start its successor."""
    run.children[MANAGER].kill()
    run.manager_kills += 1
    run.screen.note("manager killed (SIGKILL): workers and RabbitMQ continue")
    began, before = time.monotonic(), run.replies.done
    while time.monotonic() < began + _WITHOUT_S and run.outstanding:
        if run.replies.done >= before + _ENOUGH:
            break
        await asyncio.sleep(POLL_S)
    run.screen.note(f"{run.replies.done - before} answers without it within {since(began)}")
    await run.restart(MANAGER)
    run.screen.note(f"manager restarted, active {since(began)} after the kill")
    await run.answers(1)


async def await_queues(run: PoolRun) -> None:
    """Wait until RabbitMQ has written all queues to disk, so that they survive a kill.

    RabbitMQ 3.10 does so a second after a quorum queue is declared (`RabbitServer.settle`).
    """
    changed_at = time.monotonic()

    async def are_written() -> bool:
        nonlocal changed_at
        status, now = await run.status(), time.monotonic()
        generation = int(status["generation"])
        is_whole = status["state"] == "active" and all(map(_has_queue, status["groups"]))
        if generation != run.generation or not is_whole:
            run.generation, changed_at = generation, now
        return now - changed_at >= _QUEUES_WRITTEN_S

    await _eventually(are_written, "a pool in which no group comes or goes")
    run.screen.note(f"no queue was made for {_QUEUES_WRITTEN_S:g} s: RabbitMQ has all names")


async def kill_rabbitmq(run: PoolRun) -> None:
    """Kill RabbitMQ and start it again; all parts reconnect, clients send again."""
    if run.generation != int((await run.status())["generation"]):
        await await_queues(run)
    await run.kill_rabbitmq()
    run.screen.note(f"RabbitMQ killed (SIGKILL), {count(run.outstanding)} out")
    began = time.monotonic()
    await run.start_rabbitmq()
    run.screen.note(f"RabbitMQ restarted {since(began)} later")
    await _eventually(lambda: _is_active(run), "an active manager")
    await run.answers(1)
    run.screen.note(f"manager active, and answers again, {since(began)} after the kill")


async def let_group_idle(run: PoolRun) -> None:
    """Wait until the idle group has stopped: its worker, and its queue."""
    key = run.idle.key
    await _until(lambda: run.answers_of[key], f"an answer of {key}")
    began = time.monotonic()
    await _eventually(lambda: _is_idle(run), f"the end of the idle group of {key}")
    run.woke_after_s = None
    run.screen.note(
        f"no requests for {key} for {since(began)}: its worker was stopped, its queue deleted"
    )


async def await_idle_group(run: PoolRun) -> None:
    """Wait for the first answer of the idle group after it was stopped."""
    key = run.idle.key
    await _until(lambda: run.woke_after_s is not None or not run.outstanding, f"an answer of {key}")
    if run.woke_after_s is not None:
        run.screen.note(
            f"group of {key} started again by a request, which was answered after"
            f" {run.woke_after_s:.1f} s"
        )


# --- conditions -----------------------------------------------------------------------------------
async def _next_group(run: PoolRun) -> Group:
    """Return the next busy group, once its worker runs and has answered."""
    group = next(run.next_group)
    await _until(
        lambda: run.answers_of[group.key] or not run.outstanding, f"an answer of {group.key}"
    )
    if not group.pid:
        await run.require_group(group.key)
    await _until(lambda: group.pid and group.state is State.RUNNING, "a worker to kill")
    return group


async def _is_active(run: PoolRun) -> bool:
    return bool((await run.status())["state"] == "active")


async def _is_idle(run: PoolRun) -> bool:
    groups = (await run.status())["groups"]
    return all(group["key"] != run.idle.key for group in groups) and not run.idle.pid


def _has_queue(group: dict[str, Any]) -> bool:
    """Return whether a group's queue exists and is not about to be deleted."""
    return group["expected"] is not None and group["queue"] in ("bound", "unbound")


async def _until(look: Callable[[], object], what: str) -> None:
    async def ask() -> bool:
        return bool(look())

    await _eventually(ask, what)


async def _eventually(ask: Callable[[], Awaitable[bool]], what: str) -> None:
    give_up_at = time.monotonic() + _WITHIN_S
    while not await _answer(ask):
        if time.monotonic() > give_up_at:
            raise ProcessFailed(f"{what}: not seen within {_WITHIN_S:.0f} s")
        await asyncio.sleep(POLL_S)


async def _answer(ask: Callable[[], Awaitable[bool]]) -> bool:
    try:
        return await ask()
    except TransportError:  # the manager does not listen yet
        return False
