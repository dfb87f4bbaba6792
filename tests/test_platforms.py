"""Systems and event loops that requite does not support: each is refused with a sentence."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import requite
from requite.errors import ConfigurationError, LocalViolation

ON_WINDOWS = "import sys; sys.platform = 'win32'; "


def run_python(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False
    )


# --- Windows --------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["Client", "AsyncClient", "Worker", "Broker", "Dedup", "sp"])
def test_windows_is_refused_when_a_public_name_is_used(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(vars(requite), name, raising=False)
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(ConfigurationError, match=r"does not run on Windows.* Use WSL 2"):
        requite.__getattr__(name)


def test_windows_may_import_the_package() -> None:
    run = run_python(ON_WINDOWS + "import requite; print(requite.__version__)")
    assert (run.returncode, run.stdout) == (0, f"{requite.__version__}\n")


def test_the_command_refuses_windows() -> None:
    script = "from requite.cli import main; sys.exit(main(['broker']))"
    run = run_python(ON_WINDOWS + script)
    assert run.returncode == 2
    assert run.stderr.startswith("requite: requite does not run on Windows")
    assert run.stderr.count("\n") == 1


# --- other event loops ----------------------------------------------------------------------------
def drive(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Run a coroutine outside of asyncio, as trio does, up to its first wait."""
    coroutine.send(None)


def call() -> Coroutine[Any, Any, Any]:
    return requite.AsyncClient("mdp://127.0.0.1:1/it").call(b"")


def serve() -> Coroutine[Any, Any, Any]:
    async def handler(_request: requite.Request) -> bytes:
        return b""

    return requite.Worker("mdp://127.0.0.1:1", requite.service("it")(handler)).start()


def listen() -> Coroutine[Any, Any, Any]:
    return requite.Broker("tcp://127.0.0.1:0").start()


@pytest.mark.parametrize("start", [call, serve, listen])
def test_no_event_loop_of_asyncio_is_refused(start: Callable[[], Any]) -> None:
    with pytest.raises(LocalViolation, match=r"no asyncio event loop is running.*trio"):
        drive(start())


def test_a_call_started_without_an_event_loop_is_refused() -> None:
    client = requite.AsyncClient("mdp://127.0.0.1:1/it")
    with pytest.raises(LocalViolation, match="no asyncio event loop is running"):
        client.start(b"")


def test_a_client_of_another_event_loop_is_refused() -> None:
    async def first() -> requite.AsyncClient:
        client = requite.AsyncClient("mdp://127.0.0.1:1/it")
        with pytest.raises(requite.CallTimeout):
            await client.call(b"", timeout=0.01)
        return client

    async def second(client: requite.AsyncClient) -> None:
        with pytest.raises(LocalViolation, match="started on another event loop"):
            await client.call(b"")

    client = asyncio.run(first())
    asyncio.run(second(client))


# --- fork -----------------------------------------------------------------------------------------
async def test_an_async_client_is_refused_in_the_child_of_a_fork() -> None:
    async with requite.AsyncClient("mdp://127.0.0.1:1/it") as client:
        with pytest.raises(requite.CallTimeout):
            await client.call(b"", timeout=0.01)
        reader, writer = os.pipe()
        child = os.fork()
        if not child:  # pragma: no cover
            os.write(writer, in_the_child(client).encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            said = await asyncio.to_thread(pipe.read)
        await asyncio.to_thread(os.waitpid, child, 0)
        assert said.startswith("LocalViolation: this object was started on another event loop")
        with pytest.raises(requite.CallTimeout):  # the parent's client goes on
            await client.call(b"", timeout=0.01)


def in_the_child(client: requite.AsyncClient) -> str:
    """Make a call on a new event loop; return what came of it."""
    try:
        reply = asyncio.run(asyncio.wait_for(client.call(b""), 5.0))
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return repr(reply)
