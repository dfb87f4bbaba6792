"""`Runner` between a handler and an engine: how it treats the handler's return values."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from requite import Request, Worker, service
from requite.engine import Finished, Input, Produced
from requite.request import Status
from requite.worker.runner import Runner


class Run:
    """A runner whose engine is a list."""

    def __init__(self, handler: Callable[[Request], Any], told: set[str] | None = None) -> None:
        self.inputs: list[Input] = []
        self.ended = asyncio.Event()
        told = set() if told is None else told
        self.runner = Runner(service("it")(handler), 1, 1, 1000, 10, told=told)
        self.runner.submit = self.runner.submit_soon = self._take

    def _take(self, event: Input) -> None:
        self.inputs.append(event)
        if isinstance(event, Finished):
            self.ended.set()

    async def ask(self, times: int = 1) -> list[Input]:
        """Run the handler `times` times; return the inputs fed to the engine by the last run."""
        for token in range(times):
            self.inputs.clear()
            self.ended.clear()
            self.runner.deliver(token, Request("it", [b"hi"]))
            await self.ended.wait()
        await self.runner.close()
        return self.inputs


async def none(_request: Request) -> None: ...


def none_in_a_thread(_request: Request) -> None: ...


async def a_part_that_is_none(_request: Request) -> AsyncIterator[bytes | None]:
    yield b"one"
    yield None


def a_part_that_is_none_in_a_thread(_request: Request) -> Iterator[bytes | None]:
    yield b"one"
    yield None


async def two(_request: Request) -> AsyncIterator[bytes]:
    yield b"one"
    yield b"two"


def two_in_a_thread(_request: Request) -> Iterator[bytes]:
    yield b"one"
    yield b"two"


async def two_as_a_result(request: Request) -> AsyncIterator[bytes]:
    return two(request)


async def one_and_a_failure(_request: Request) -> AsyncIterator[bytes]:
    async def parts() -> AsyncIterator[bytes]:
        yield b"one"
        raise ValueError("no more")

    return parts()


async def nothing(_request: Request) -> bytes:
    return b""


NONE = [none, none_in_a_thread, a_part_that_is_none, a_part_that_is_none_in_a_thread]


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert all(record.levelno == logging.WARNING for record in caplog.records)
    return [record.getMessage() for record in caplog.records if record.name == "requite.worker"]


@pytest.mark.parametrize("handler", NONE)
async def test_a_handler_that_returns_none_is_warned_of_once(handler: Any, caplog: Any) -> None:
    inputs = await Run(handler).ask(times=3)
    assert isinstance(inputs[-1], Finished)
    assert inputs[-1].status is Status.OK
    assert inputs[-1].frames == (b"",)
    [line] = lines(caplog)
    assert "'it'" in line
    assert "None" in line
    assert "an empty reply" in line
    assert 'b""' in line


@pytest.mark.parametrize("handler", [two, two_in_a_thread, nothing])
async def test_a_handler_that_returns_bytes_causes_no_warning(handler: Any, caplog: Any) -> None:
    inputs = await Run(handler).ask(times=2)
    assert inputs[-1] == Finished(1, (b"",))
    assert [part.frames for part in inputs if isinstance(part, Produced)] in (
        [],
        [(b"one",), (b"two",)],
    )
    assert lines(caplog) == []


async def test_the_values_of_a_returned_async_iterator_are_partial_replies() -> None:
    inputs = await Run(two_as_a_result).ask()
    assert inputs == [Produced(0, (b"one",)), Produced(0, (b"two",)), Finished(0, (b"",))]
    *parts, failed = await Run(one_and_a_failure).ask()
    assert parts == [Produced(0, (b"one",))]
    assert failed == Finished(0, (b"ValueError: no more",), Status.FAILED)


async def test_a_service_is_warned_of_once_across_runners(caplog: Any) -> None:
    told: set[str] = set()
    for _ in range(2):
        await Run(none, told).ask()
    assert len(lines(caplog)) == 1
    assert told == {"it"}


def test_the_runners_of_a_worker_share_their_warnings() -> None:
    runtimes = Worker("pirate://127.0.0.1:1", service("it")(none), capacity=3)._make_runtimes()
    assert len(runtimes) == 3
    assert len({id(runtime.runner._told) for runtime in runtimes}) == 1


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("hello", "not str; encode it first: .encode()"),
        (7, "not int"),
        ([b"ok", "text"], "not a list with str in it"),
        ((b"ok", None), "not a tuple with NoneType in it"),
        ({"a": 1}, "not dict"),
    ],
)
async def test_an_invalid_reply_fails_and_names_its_type(
    answer: Any, told: str, caplog: Any
) -> None:
    async def handler(_request: Request) -> Any:
        return answer

    [finished] = await Run(handler).ask()
    assert isinstance(finished, Finished)
    assert finished.status is Status.FAILED
    assert finished.frames[0].startswith(b"TypeError: a handler must return bytes")
    assert told in finished.frames[0].decode()
    assert lines(caplog) == ["a handler of it failed"]


class Job:
    """A token that is a job with a call id, as engines deliver it."""

    call_id = bytes(range(16))


@pytest.mark.parametrize(("token", "expected"), [(Job(), Job.call_id.hex()), (7, None)])
async def test_the_log_line_of_a_failed_handler_has_the_id_of_the_request(
    token: Any, expected: str | None, caplog: Any
) -> None:
    async def handler(_request: Request) -> bytes:
        raise ValueError("no such account")

    run = Run(handler)
    run.runner.deliver(token, Request("it", (b"",)))
    await run.ended.wait()
    await run.runner.close()
    assert lines(caplog) == ["a handler of it failed"]
    assert getattr(caplog.records[-1], "request_id", None) == expected


async def test_handlers_that_a_close_interrupts_count_as_cancelled() -> None:
    started = asyncio.Event()

    async def blocks(_request: Request) -> None:
        started.set()
        await asyncio.Event().wait()

    run = Run(blocks)
    run.runner.deliver(0, Request("it", [b"hi"]))
    await started.wait()
    await run.runner.close()
    seen = run.runner.handled()
    assert (seen.ok, seen.failed, seen.cancelled, sum(seen.counts)) == (0, 0, 1, 1)
