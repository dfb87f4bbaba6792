"""Dashboard and alert rules in deploy/: their metrics exist, and the rules fire as they should."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.deploy.files import DEPLOY, ROOT, tool

from requite.metrics.catalogue import GROUPS, Kind

ALERTS = DEPLOY / "alerts.yml"
PAGES = ROOT / "docs" / "how-to" / "alerts"
PROMTOOL = tool("promtool")
# Of Prometheus itself, and of `prometheus_client` for every process on Linux.
OTHERS = {"up", "process_cpu_seconds_total", "process_resident_memory_bytes"}
WORDS = re.compile(r'"(?:\\.|[^"\\])*"|\{[^}]*\}|by \([^)]*\)|\[[^\]]*\]')
NAME = re.compile(r"\b(?:requite|process)_\w+\b|\bup\b")

with_promtool = pytest.mark.skipif(PROMTOOL is None, reason="no promtool (Debian's prometheus)")


def series() -> dict[str, set[str]]:
    """Return the names of all series, with their labels."""
    found: dict[str, set[str]] = {name: set() for name in OTHERS}
    for each in (each for group in GROUPS.values() for each in group):
        labels = set(each.labels)
        if each.kind is Kind.HISTOGRAM:
            found[f"{each.name}_sum"] = found[f"{each.name}_count"] = labels
            found[f"{each.name}_bucket"] = labels | {"le"}
        else:
            found[each.name] = labels
    return found


def rules() -> list[dict[str, Any]]:
    [group] = yaml.safe_load(ALERTS.read_text())["groups"]
    listed: list[dict[str, Any]] = group["rules"]
    return listed


def dashboard() -> dict[str, Any]:
    read: dict[str, Any] = json.loads((DEPLOY / "grafana.json").read_text())
    return read


def queries() -> Iterator[str]:
    """Yield the expressions of dashboard and alerts."""
    for panel in dashboard()["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]
    yield from (rule["expr"] for rule in rules())


@pytest.mark.parametrize("query", sorted(set(queries())))
def test_a_query_names_metrics_and_labels_that_exist(query: str) -> None:
    known = series()
    names = set(NAME.findall(WORDS.sub(" ", query)))
    assert names
    assert names <= known.keys()
    labels = {"instance", "job"}.union(*(known[name] for name in names))
    matched = set(re.findall(r"[{,]\s*(\w+)\s*[=!]", query))
    grouped = {
        label.strip()
        for group in re.findall(r"by \(([^)]*)\)", query)
        for label in group.split(",")
    }
    asked = set(re.findall(r"label_values\(\w+, (\w+)\)", query))
    assert matched | grouped | asked <= labels


def test_the_dashboard_has_most_metrics() -> None:
    """Those of queues, devices, pools, shippers, streaming audits and replicas are left out, and
    what only says a limit."""
    shown = {name for query in queries() for name in NAME.findall(query)}
    missing = series().keys() - shown
    kept = {
        name
        for name in missing
        if not re.search("_(queue|device|pool|ship|watch)_|_sum$|_count$", name)
    }
    assert kept == {
        "requite_broker_pending_requests",
        "requite_broker_services",
        "requite_broker_services_max",
        "requite_gateway_in_progress",
        "requite_pair_epoch",
        "requite_titanic_replica_behind_records",
        "requite_titanic_storing",
    }


def test_panels_have_ids_and_places_of_their_own() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(taken)) == len(taken)
    assert all(x < 24 for x, _ in taken)


def test_each_alert_has_a_page() -> None:
    pages = {path.name for path in PAGES.glob("*.md")}
    named = {rule["alert"]: rule["annotations"]["runbook"] for rule in rules()}
    assert {path.rpartition("/")[2] for path in named.values()} == pages
    for alert, path in named.items():
        assert (ROOT / path).read_text().startswith(f"# {alert}\n")


def test_each_alert_is_tested() -> None:
    file = yaml.safe_load((ROOT / "tests" / "deploy" / "alerts_test.yml").read_text())
    cases = [case for test in file["tests"] for case in test["alert_rule_test"]]
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == {
        rule["alert"] for rule in rules()
    }


@with_promtool
def test_prometheus_accepts_the_rules() -> None:
    assert PROMTOOL is not None
    command = [PROMTOOL, "check", "rules", str(ALERTS)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr + ended.stdout


@with_promtool
def test_the_rules_fire_as_they_should() -> None:
    assert PROMTOOL is not None
    command = [PROMTOOL, "test", "rules", str(ROOT / "tests" / "deploy" / "alerts_test.yml")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr + ended.stdout
