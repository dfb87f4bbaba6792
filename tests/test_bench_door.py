"""`bench.door`: its table, and a short run of both servers."""

from __future__ import annotations

import pytest
from bench.door import Cost, measured, table


def test_the_table_compares_with_the_plain_route() -> None:
    costs = {"plain route": Cost(0.0002, 0.0), "`requite gateway`": Cost(0.0005, 0.0001)}
    assert table(costs).splitlines()[2:] == [
        "| plain route | 200 µs | 1.0 | 200 µs |",
        "| `requite gateway` | 500 µs | 2.5 | 600 µs |",
    ]


@pytest.mark.e2e
@pytest.mark.slow
def test_both_servers_answer() -> None:
    costs = measured(requests=400, rounds=1, connections=2)
    assert list(costs) == ["plain route", "`requite gateway`"]
    assert costs["plain route"].behind_s == 0
