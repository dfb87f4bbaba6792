"""Child processes of tests, demos and benchmarks: their output, failures and termination."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

import pytest

from requite.testing.processes import Children, ProcessFailed

WAIT_S = 20.0
STUBBORN = """
import signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("url 127.0.0.1:1234", flush=True)
print("ready", file=sys.stderr, flush=True)
signal.pause()
"""
PARENT = f"""
import signal, sys
from requite.testing.processes import Children
child = Children().start([sys.executable, "-c", {STUBBORN!r}], name="the server")
child.wait_for("^ready$", {WAIT_S})
print(child.pid, flush=True)
signal.pause()
"""


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_both_outputs_of_a_child_are_read_and_a_child_that_ignores_sigterm_is_killed():
    with Children() as children:
        child = children.start(python(STUBBORN), name="the server")
        child.wait_for("^ready$", WAIT_S)
        assert child.wait_for(r"^url (\S+)$", WAIT_S)[1] == "127.0.0.1:1234"
        assert children.report().startswith("the server is running, its output:\n    url")
        child.end(0.01)
        assert child.report().startswith(f"the server ended with status {-signal.SIGKILL}")


def test_a_child_that_ends_on_sigterm_is_not_killed():
    with Children() as children:
        child = children.start(
            python("import signal; print('ready', flush=True); signal.pause()"), name="the server"
        )
        child.wait_for("^ready$", WAIT_S)
        child.end(WAIT_S)
        assert child.report().startswith(f"the server ended with status {-signal.SIGTERM}")


def test_children_do_not_fight_for_the_port_of_their_parent(monkeypatch):
    monkeypatch.setenv("REQUITE_HTTP", ":9464")
    monkeypatch.setenv("REQUITE_JOURNAL", "journal")
    show = python("import os; print(*map(os.environ.get, ('REQUITE_HTTP', 'REQUITE_JOURNAL')))")
    with Children() as children:
        child = children.start(show, name="one")
        assert child.wait_for("^None journal$", WAIT_S)


@pytest.mark.parametrize("command", [python("print('hello')"), ["requite-no-such-program"]])
def test_waiting_for_a_line_fails_when_the_child_ends(command):
    with Children() as children:
        child = children.start(command, name="the server")
        with pytest.raises(ProcessFailed, match=r"the server (did not start|ended)"):
            child.wait_for("^ready$", WAIT_S)
        assert "hello" in child.report() or "FileNotFoundError" in child.report()


def test_waiting_for_a_line_fails_after_the_time_limit():
    with Children() as children:
        child = children.start(python(STUBBORN), name="the server")
        with pytest.raises(ProcessFailed, match="did not print a line with 'never' within 0 s"):
            child.wait_for("never", 0.01)


def test_a_child_ends_when_its_parent_is_killed():
    with subprocess.Popen(python(PARENT), stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pidfd = os.pidfd_open(int(parent.stdout.readline()))
        try:
            parent.kill()
            assert select.select([pidfd], [], [], WAIT_S)[0] == [pidfd]
        finally:
            os.close(pidfd)
