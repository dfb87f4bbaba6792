"""The figures of a manager, as Prometheus reads them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from requite.pool.manager.status import metrics_of

POOL = 'co"re\\\n'
GAUGES = {
    "active": {(): 1},
    "groups": {("active",): 2, ("unbound",): 0},
    "running_groups": {(): 3},
    "workers": {(): 5},
    "failing_groups": {(): 1},
    "orphans": {(): 4},
}
COUNTERS = {
    "orphans_forwarded": {(): 7},
    "dead_letters": {('deliv"ered',): 3, ("expired",): 2},
    "poisoned": {(): 6},
}


def manager() -> Any:
    group = SimpleNamespace(status="active")
    seen = SimpleNamespace(
        groups=SimpleNamespace(
            running={
                "a": SimpleNamespace(workers=2),
                "b": SimpleNamespace(workers=3),
                "c": SimpleNamespace(workers=None),
            },
            pausing=1,
        ),
        state=SimpleNamespace(groups={"a": group, "b": group}),
        orphans=SimpleNamespace(waiting={"a": 1, "d": 3}, forwarded=7),
        dead_letters=SimpleNamespace(by_reason={"expired": 2, 'deliv"ered': 3}, poison=6),
    )
    config = SimpleNamespace(pool=SimpleNamespace(name=POOL))
    return SimpleNamespace(config=config, state="active", snapshot=lambda: seen)


def test_names_types_labels_and_values() -> None:
    found: dict[str, dict[str, dict[tuple[str, ...], float]]] = {"gauge": {}, "counter": {}}
    for family in text_string_to_metric_families(metrics_of(manager())):
        assert family.documentation.endswith(".")
        for sample in family.samples:
            suffix = "_total" if family.type == "counter" else ""
            assert sample.name == f"{family.name}{suffix}"
            labels = dict(sample.labels)
            assert labels.pop("pool") == POOL
            assert labels.keys() <= {"status", "reason"}
            short = family.name.removeprefix("requite_pool_")
            found[family.type].setdefault(short, {})[tuple(labels.values())] = sample.value
    assert found == {"gauge": GAUGES, "counter": COUNTERS}
