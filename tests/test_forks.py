"""Commands in forks (`tests.support.forks`) do what they do in processes of their own."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from tests.cli.command import COMMAND, ENVIRONMENT, WAIT_S
from tests.support import forks

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--version"], 0),
        (["call", "--help"], 0),
        (["broker", "--check"], 0),
        (["broker", "--chekc"], 2),
        (["call", "nowhere", "0"], 2),
        (["worker", "local:missing", "--connect", "mdp://127.0.0.1:1"], 2),
        (["sim", "--seed", "5", "--seeds", "2", "--jobs", "2"], 0),
    ],
)
def test_a_command_in_a_fork_does_the_same(words: list[str], code: int, tmp_path: Path) -> None:
    (tmp_path / "local.py").write_text("async def there(request):\n    return request.body\n")
    process = subprocess.run(
        [*COMMAND, *words],
        input=b"typed",
        capture_output=True,
        cwd=tmp_path,
        env=ENVIRONMENT,
        timeout=WAIT_S,
    )
    fork = forks.run(words, stdin=b"typed", cwd=tmp_path, env=ENVIRONMENT, within_s=WAIT_S)
    assert (fork.returncode, fork.stdout, fork.stderr) == (code, process.stdout, process.stderr)


@pytest.mark.parametrize("path", ["/nowhere/one", "/nowhere/two"])
def test_a_fork_has_its_own_variables(path: str) -> None:
    words = ["call", "mdp://127.0.0.1:1/echo", "0"]
    env = ENVIRONMENT | {"REQUITE_CREDENTIALS_FILE": path}
    ended = forks.run(words, stdin=b"", cwd=Path.cwd(), env=env, within_s=WAIT_S)
    assert ended.returncode == 2
    assert path in ended.stderr.decode()


def test_a_fork_that_does_not_exit_is_killed() -> None:
    begun = time.monotonic()
    words = ["broker", "--bind", "tcp://127.0.0.1:0"]
    with pytest.raises(subprocess.TimeoutExpired):
        forks.run(words, stdin=b"", cwd=Path.cwd(), env=ENVIRONMENT, within_s=0.5)
    assert time.monotonic() - begun < WAIT_S


def test_an_ended_server_is_started_again() -> None:
    forks.end()
    for _ in range(2):
        ended = forks.run(["--version"], stdin=b"", cwd=Path.cwd(), env={}, within_s=WAIT_S)
        assert ended.returncode == 0
