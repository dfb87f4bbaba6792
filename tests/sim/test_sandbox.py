"""The sandbox runs work in a child process and returns its value, error or crash."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import psutil
import pytest
from tests.sim import troubled

from requite.sim.kernel.sandbox import Crashed, Hung, Returned, Sandbox, SandboxBroken
from requite.sim.kernel.sandboxed import Limits


def sandbox(work: Callable[..., Any], run_s: float = 30.0) -> Sandbox:
    return Sandbox(pickle.dumps(work), Limits(run_s=run_s))


def test_one_child_serves_many_runs() -> None:
    with sandbox(os.getpid) as box:
        first, second = box.run(), box.run()
    assert isinstance(first, Returned)
    assert first.value == second.value != os.getpid()
    assert not psutil.pid_exists(first.value)


def test_arguments_and_values_pass() -> None:
    with sandbox(divmod) as box:
        assert box.run(17, 5).value == (3, 2)


def test_an_exception_is_reported_and_the_child_survives() -> None:
    with sandbox(divmod) as box:
        outcome = box.run(1, 0)
        assert isinstance(outcome, Crashed)
        assert "ZeroDivisionError" in outcome.error
        assert "Traceback" in outcome.error
        assert box.run(17, 5).value == (3, 2)


@pytest.mark.parametrize(
    ("trouble", "says"),
    [
        (troubled.leave, "exit code 9"),
        (troubled.die, "SIGSEGV"),
        (sys.exit, "exit code 0"),
        (troubled.collect, "MemoryError"),
    ],
)
def test_a_run_that_ends_its_process_has_crashed(trouble: Callable[[], None], says: str) -> None:
    with sandbox(trouble) as box:
        for _ in range(2):
            outcome = box.run()
            assert isinstance(outcome, Crashed)
            assert says in outcome.error


def test_a_crash_report_has_a_traceback() -> None:
    with sandbox(troubled.die) as box:
        assert "in die" in box.run().error


@pytest.mark.parametrize("trouble", [troubled.wait_for_ever, troubled.hold_the_lock])
def test_a_hung_run_is_killed_with_a_traceback(trouble: Callable[[], None]) -> None:
    with sandbox(trouble, run_s=1.0) as box:
        outcome = box.run()
        assert isinstance(outcome, Hung)
        assert outcome.error.startswith("no end within 1 s")
        assert f"in {trouble.__name__}" in outcome.error
        assert 1.0 <= outcome.elapsed_s < 20
        assert isinstance(box.run(), Hung)


def test_output_of_earlier_runs_is_forgotten() -> None:
    with sandbox(exec) as box:
        box.run("print('earlier', flush=True)")
        outcome = box.run("print('last words', flush=True); import os; os._exit(3)")
    assert "last words" in outcome.error
    assert "earlier" not in outcome.error


def test_work_that_cannot_be_loaded_raises() -> None:
    with (
        Sandbox(b"cno_such_module\nrun\n.", Limits()) as box,
        pytest.raises(SandboxBroken, match="no_such_module"),
    ):
        box.run()


_OWNER = """
import pickle, sys
from requite.sim.kernel.sandbox import Sandbox
from requite.sim.kernel.sandboxed import Limits
box = Sandbox(pickle.dumps(exec), Limits())
box.run("import os; print(os.getpid(), flush=True)")
print(box._child._process.pid, flush=True)
box.run("while True: pass")
"""


def test_the_child_exits_when_its_owner_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", _OWNER], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        child = psutil.Process(int(owner.stdout.readline()))
        owner.send_signal(signal.SIGKILL)
    child.wait(20)
    assert not child.is_running()
