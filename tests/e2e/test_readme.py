"""The examples of the README and the tutorial, run as printed except for the port."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
COMMAND = Path(sys.executable).with_name("requite")
PRINTED = "127.0.0.1:5555"


def blocks(page: str, language: str) -> list[str]:
    """Return the fenced code blocks of one language."""
    text = (ROOT / page).read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in reversed(started):
        process.terminate()
        process.communicate(timeout=20)


def serve(processes: list[subprocess.Popen[str]], folder: Path, *arguments: str) -> str:
    """Start a command that serves; return its first line."""
    process = subprocess.Popen(
        [COMMAND, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    processes.append(process)
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.parametrize(
    ("page", "services"),
    [
        ("README.md", ["hello:hello", "hello:fails"]),
        ("docs/tutorial/first-service.md", ["hello:hello"]),
    ],
)
def test_the_examples_work_as_printed(
    page: str, services: list[str], tmp_path: Path, processes: list[subprocess.Popen[str]]
) -> None:
    hello, *programs = blocks(page, "python")
    (tmp_path / "hello.py").write_text(hello)
    listening = serve(processes, tmp_path, "broker", "--bind", "tcp://127.0.0.1:0")
    place = listening.split("tcp://")[1].strip()
    serving = serve(processes, tmp_path, "worker", *services, "--connect", f"mdp://{place}")
    transcripts = [text.replace(PRINTED, place) for text in blocks(page, "console")]
    assert any(listening in text for text in transcripts)
    assert any(serving in text for text in transcripts)

    called = run(tmp_path, [str(COMMAND), "call", f"mdp://{place}/hello", "world"])
    assert any(text.endswith(f"/hello world\n{called}\n") for text in transcripts)
    for program in programs:
        printed = run(tmp_path, [sys.executable, "-c", program.replace(PRINTED, place)])
        if page == "README.md":
            assert printed in transcripts


def test_the_example_without_a_broker_works_as_printed(
    tmp_path: Path, processes: list[subprocess.Popen[str]]
) -> None:
    (tmp_path / "hello.py").write_text(blocks("README.md", "python")[0])
    serving = serve(processes, tmp_path, "worker", "hello:hello", "--bind", "sp+tcp://127.0.0.1:0")
    place = serving.split()[-1]
    [transcript] = (text for text in blocks("README.md", "console") if "--bind sp+" in text)
    transcript = transcript.replace("sp+tcp://127.0.0.1:7000", place)
    called = run(tmp_path, [str(COMMAND), "call", place, "world"])
    assert serving in transcript
    assert transcript.endswith(f"{place} world\n{called}\n")


def run(folder: Path, command: list[str]) -> str:
    """Run a command, which must succeed; return its output."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
