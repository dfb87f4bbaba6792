"""Writes docs/reference/metrics.md: every metric.

python -m tests.metrics.page        writes the page
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from requite.cli.watching import NAMED_MAX
from requite.core.durations import BOUNDS_S
from requite.metrics.catalogue import GROUPS

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"

_INTRODUCTION: Final = f"""\
# Metrics

Commands with `--http HOST:PORT` have these metrics at `/metrics`, in the text format of Prometheus.
The manager of a pool has them at its `http.port` ([pool.toml](pool-toml.md)).
[Watch a broker](../how-to/watch-a-broker.md) says how to collect them, and what to look at.

- Names, kinds and labels stay, as the options of the commands do
  ([stability](../topics/stability.md)). New metrics and new values of labels may be added.
- Times are in seconds, sizes in bytes. A counter (`_total`) only grows, and begins again at 0 when
  the process is started again: use `rate()` or `increase()`.
- A histogram NAME has `NAME_bucket`, with a label `le`, `NAME_sum` and `NAME_count`. The bounds are
  {", ".join(f"{each:g}" for each in BOUNDS_S)} seconds.
- `service` is the name of a service. A broker has metrics of its own for the {NAMED_MAX} services
  with most requests (`--metrics-services`); all others are summed as `other`, and so are services
  that were removed, or have never had a worker. When a service moves between its name and
  `other`, no request is counted twice: the counter of `other` never goes down, and that of a
  service begins again at 0 when it leaves and returns. Add rates, not counters:
  `sum(rate(requite_requests_accepted_total[5m]))`.
- `/metrics/detailed?service=NAME` has all numbers of one service of a broker, whether it has
  metrics of its own or not.
- The values ok, failed, overloaded and poisoned of `status` are there from the start, and so are
  all values of `verb`; other values of `status` from the first request that ended with them.
- Numbers come from the tables of the engine at the moment of a scrape. A scrape is reused for up to
  a second if it took long.

On Linux there are also `process_cpu_seconds_total`, `process_resident_memory_bytes`,
`process_virtual_memory_bytes`, `process_start_time_seconds`, `process_open_fds` and
`process_max_fds`, by `prometheus_client`.
"""


def render() -> str:
    """Return the page."""
    lines = [_INTRODUCTION]
    for title in GROUPS:
        lines += [f"## {title}", "", "| metric | kind | labels | meaning |", "|---|---|---|---|"]
        lines += [*_rows(title), ""]
    return "\n".join(lines)


def _rows(title: str) -> Iterator[str]:
    for each in GROUPS[title]:
        labels = ", ".join(f"`{label}`" for label in each.labels)
        yield f"| `{each.name}` | {each.kind} | {labels} | {each.about} |"


def main(page: Path = PAGE) -> int:
    """Write the page; return the exit status."""
    page.write_text(render(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
