"""The rights of users at the front and at the back of a queue and of a device."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.e2e.cluster import until

import requite
from requite.errors import CallError
from requite.examples import echo
from requite.journal.reader import events
from requite.queue import Queue
from requite.sp import Device

ME = f"[user.me]\nlocal = {os.getuid()}\n"
BOTH = 'call = ["price"]\nserve = ["price"]'


class Middle(NamedTuple):
    """A queue or device with an access file, and the URLs of its sides."""

    daemon: Queue | Device
    front: str
    back: str


def _queue(folder: Path, access: Path) -> Middle:
    front, back = (f"ipc://{folder}/{side}" for side in ("front", "back"))
    daemon = Queue(front, back, access=access, journal=folder / "journal")
    return Middle(daemon, f"pirate+{front}", f"pirate+{back}")


def _device(folder: Path, access: Path) -> Middle:
    front, back = (f"sp+ipc://{folder}/{side}" for side in ("front", "back"))
    return Middle(Device(front, back, access=access, journal=folder / "journal"), front, back)


Make = Callable[[Path, Path], Middle]
each_middle = pytest.mark.parametrize("make", [_queue, _device])


def _access_file(folder: Path, rights: str) -> Path:
    path = folder / "access.toml"
    path.touch(0o600)
    path.write_text(ME + rights)
    return path


def _decisions(folder: Path, kind: str) -> set[str]:
    return {str(each.reason) for each in events(folder / "journal") if each.kind == kind}


@each_middle
@pytest.mark.parametrize(("granted", "missing"), [("call", "serve"), ("serve", "call")])
async def test_a_user_needs_call_at_the_front_and_serve_at_the_back(
    make: Make, granted: str, missing: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At the back it would get the requests of others, and could forge the replies."""
    middle = make(tmp_path, _access_file(tmp_path, f'{granted} = ["price"]'))
    why = f"me has no right to {missing} any service ({missing} = [...] in the access file)"
    async with (
        middle.daemon,
        requite.Worker(middle.back, echo),
        requite.AsyncClient(middle.front) as client,
    ):
        with pytest.raises(CallError):
            await client.call(b"hi", timeout=0.5)
        await until(lambda: why in caplog.text)
    assert _decisions(tmp_path, "denied") == {why}
    assert _decisions(tmp_path, "admitted"), "the other one"


@each_middle
async def test_a_lost_right_ends_connections_of_its_side(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = _access_file(tmp_path, BOTH)
    middle = make(tmp_path, path)
    async with (
        middle.daemon,
        requite.Worker(middle.back, echo),
        requite.AsyncClient(middle.front) as client,
    ):
        assert (await client.call(b"hi", timeout=20)).body == b"hi"
        path.write_text(ME + 'call = ["price"]')
        await until(lambda: "me has no right to serve any service" in caplog.text)
        with pytest.raises(CallError):
            await client.call(b"hi", timeout=0.5)
    assert "changed" in _decisions(tmp_path, "rights")
