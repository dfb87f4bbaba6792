"""Short runs of the broker and the load in C; no particular figure is required."""

from __future__ import annotations

import pytest
from bench.brokers import native
from bench.builds import THIS
from bench.cells import Cell
from bench.contenders import Contender, contenders
from bench.runner import Settings, run_once

SHORT = Settings(runs=1, seconds=0.1, requests=20, warm_up_s=0.0, capacity=1)
NATIVE = [each for each in contenders([THIS]) if each.kind == "native"]

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.mark.parametrize("window", [1, 8])
@pytest.mark.parametrize("size", [11, 1024])
@pytest.mark.parametrize("contender", NATIVE, ids=lambda each: each.name)
def test_the_load_in_c_counts_the_replies_of_a_broker(
    contender: Contender, size: int, window: int
) -> None:
    if (lack := contender.lack()) is not None:
        pytest.skip(lack)
    run = run_once(Cell("native", window, 2, size), contender, 0, SHORT)
    assert not run.failure
    assert run.figures is not None
    assert run.figures["answered"] > 0
    assert run.figures["broker_cpu_us"] >= 0
    assert ("latency_p50_us" in run.figures) == (window == 1)


def test_a_missing_compiler_is_reported_with_the_packages_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    program = native.CProgram(native.BROKER.source, "`gcc` and `a-library`")
    assert program.lack() == "no C compiler: install Debian's packages `gcc` and `a-library`"
