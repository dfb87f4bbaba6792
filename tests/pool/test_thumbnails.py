"""The example `thumbnails`: its README as printed, and what the README promises."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import signal
import threading
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import pytest
from PIL import Image
from tests.support.live import eventually
from tests.support.page_steps import COMMAND, Terminals, steps
from tests.support.rabbit import Rabbit
from tests.support.type_checkers import checked

import requite
from requite.pool.drivers.records import Record, Records
from requite.testing.processes import free_ports

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "thumbnails"
PAGE: Final = (EXAMPLE / "README.md").read_text(encoding="utf-8")
PRINTED: Final = "amqp://guest:guest@localhost/"
RUN: Final = ["requite", "pool", "run", "--config", "pool.toml"]


class Scene(NamedTuple):
    """A copy of the example, with terminals and a RabbitMQ of its own."""

    folder: Path
    terminals: Terminals
    rabbit: Rabbit

    def run(self, words: list[str], lines: int = 1) -> str:
        """Run a command of the README at this RabbitMQ."""
        words = [word.replace(PRINTED, self.rabbit.url) for word in words]
        return self.terminals.run(words, lines)

    def send(self, customer: str) -> str:
        """Send a small picture; return what is printed."""
        Image.effect_noise((400, 300), 60).save(self.folder / "small.png")
        return self.run(["python", "send.py", f"{PRINTED}?pool=thumbnails", customer, "small.png"])

    def workers(self) -> list[Record]:
        """Return the records of the running workers."""
        return Records(self.folder / "state" / "thumbnails.default").living()


@pytest.fixture
def scene(rabbit: Rabbit, tmp_path: Path) -> Iterator[Scene]:
    folder = tmp_path / "thumbnails"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    [port] = free_ports(1)
    variables = {
        "PATH": f"{COMMAND.parent}:{os.environ['PATH']}",
        "REQUITE_POOL_MANAGER": f"http://127.0.0.1:{port}",
        "REQUITE_POOL__HTTP__PORT": str(port),
        "REQUITE_POOL__RABBITMQ__URL": rabbit.url,
        "REQUITE_POOL__RABBITMQ__MANAGEMENT_URL": rabbit.management_url,
        "REQUITE_POOL__DRIVER__STATE_DIR": str(folder / "state"),
        "REQUITE_POOL__LOOPS__INTERVAL": "0.2",
    }
    terminals = Terminals(folder, variables)
    try:
        yield Scene(folder, terminals, rabbit)
    finally:
        terminals.close()


def without_what_differs(text: str) -> str:
    """Return output without the manager's port and the digest of its settings."""
    text = re.sub(r"http://127\.0\.0\.1:\d+", "http://127.0.0.1:8670", text)
    return re.sub(r"\b[0-9a-f]{12}\b", "3b1f0c5ad9e2", text)


def test_the_readme_works_as_printed(scene: Scene) -> None:
    ran = []
    for words, output in steps(PAGE):
        printed = scene.run(words, len(output.splitlines()))
        assert without_what_differs(printed).rstrip() == output.rstrip()
        ran.append(words[1])
    assert ran == ["pool", "-c", "send.py", "send.py", "pool", "send.py", "send.py"]
    with Image.open(scene.folder / "photo-1024.jpg") as thumbnail:
        assert (thumbnail.format, thumbnail.size) == ("JPEG", (1024, 768))
    assert len(PAGE.splitlines()) <= 80
    scene.terminals.close()
    assert not scene.workers()


def test_a_worker_stops_without_pictures_and_starts_with_the_next_one(scene: Scene) -> None:
    printed = scene.send("bo")
    assert printed.startswith("small.png: ")
    assert "no manager has set the pool up" in printed
    brief = [f"--set=lifetime.{name}=0.3" for name in ("unbind_delay", "stop_delay")]
    scene.run([*RUN, *brief, "--set=lifetime.extra_lifetime=0.1"], 2)
    for _ in range(2):
        assert scene.send("bo") == "small-100.jpg: 100 × 75\nsmall-400.jpg: 400 × 300\n"
        eventually(lambda: not scene.workers(), "the end of the worker", 30)


def test_the_picture_of_a_killed_worker_is_done_by_the_next_one(scene: Scene) -> None:
    scene.run(RUN, 2)
    scene.send("anna")
    eventually(lambda: held(scene.rabbit) == 0, "the end of the first picture", 30)
    [worker] = scene.workers()
    assert worker.pid
    os.killpg(worker.pid, signal.SIGSTOP)
    printed: list[str] = []
    sending = threading.Thread(target=lambda: printed.append(scene.send("anna")))
    sending.start()
    eventually(lambda: held(scene.rabbit) == 1, "the picture at the frozen worker", 30)
    os.killpg(worker.pid, signal.SIGKILL)
    sending.join(60)
    assert [line.split(":")[0] for line in printed[0].splitlines()] == [
        "small-64.jpg", "small-256.jpg", "small-400.jpg",
    ]  # fmt: skip
    [successor] = scene.workers()
    assert successor.worker_id != worker.worker_id


def held(rabbit: Rabbit) -> int:
    """Return how many requests a worker holds."""
    queues = rabbit.api("GET", f"/queues/{rabbit.vhost}")
    return sum(queue.get("messages_unacknowledged", 0) for queue in queues)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of the service, as a worker of anna loads it."""
    monkeypatch.setenv("WORKER_KEY", "anna")
    monkeypatch.chdir(EXAMPLE)
    return SimpleNamespace(**runpy.run_path("thumbnails.py"))


def png(picture: Image.Image) -> bytes:
    file = BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def test_damaged_and_huge_pictures_are_refused(service: Any) -> None:
    whole = png(Image.effect_noise((400, 300), 60))
    for data in (b"", b"no picture", whole[:-2000], whole[:30]):
        with pytest.raises(requite.RemoteFailure, match="not a picture, or it is damaged"):
            service.picture_in(data)
    huge = png(Image.new("1", (10_000, 9_000)))
    assert len(huge) < 20_000
    with pytest.raises(requite.RemoteFailure, match="10000 × 9000 pixels; the maximum is 80,000"):
        service.picture_in(huge)


def test_pictures_of_any_mode_get_a_watermark_if_it_is_legible(service: Any) -> None:
    for mode in ("1", "L", "LA", "P", "RGBA", "CMYK", "I;16"):
        file = BytesIO()
        Image.new(mode, (600, 400)).save(file, "TIFF")
        picture = service.picture_in(file.getvalue())
        assert picture.mode == "RGB"
        with Image.open(BytesIO(service.thumbnail(picture, 64, "anna"))) as small:
            assert small.size == (64, 43)
            assert len(small.getcolors()) == 1
        with Image.open(BytesIO(service.thumbnail(picture, 400, "anna"))) as large:
            assert large.size == (400, 267)
            assert len(large.getcolors()) > 1


def test_its_types_are_correct_for_basedpyright(tmp_path: Path) -> None:
    for file in EXAMPLE.glob("*.py"):
        shutil.copy(file, tmp_path)
    assert checked("basedpyright", tmp_path) == []
