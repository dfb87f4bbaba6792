"""Functions that read the metrics of a running command."""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families
from tests.cli.command import WAIT_S, Running
from tests.support.live import eventually

PROMTOOL: Final = shutil.which("promtool")

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class Answer(NamedTuple):
    """An answer over HTTP."""

    status: int
    text: str
    kind: str

    @property
    def said(self) -> Any:
        """The body as JSON."""
        return json.loads(self.text)


class Scraped:
    """Metrics, by name and labels, read with the parser of `prometheus_client`."""

    def __init__(self, text: str) -> None:
        self.text = text
        families = list(text_string_to_metric_families(text))
        names = [each.name for each in families]
        assert len(set(names)) == len(names), names
        self.kinds = {each.name: each.type for each in families}
        self.samples: Samples = {}
        for family in families:
            for sample in family.samples:
                key = sample.name, tuple(sorted(sample.labels.items()))
                assert key not in self.samples, key
                self.samples[key] = sample.value

    def value(self, name: str, **labels: str) -> float | None:
        """Return a value; None if there is none."""
        return self.samples.get((name, tuple(sorted(labels.items()))))

    def services(self, name: str = "requite_requests_accepted_total") -> set[str]:
        """Return the services that a metric has."""
        return {dict(labels)["service"] for found, labels in self.samples if found == name}


def get(
    url: str, path: str, headers: Mapping[str, str] | None = None, method: str = "GET"
) -> Answer:
    """Ask a server."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=WAIT_S)
    try:
        connection.request(method, path, headers=dict(headers or {}))
        response = connection.getresponse()
        text = response.read().decode()
        return Answer(response.status, text, response.headers.get("Content-Type", ""))
    finally:
        connection.close()


def scrape(url: str, path: str = "/metrics") -> Scraped:
    """Return the metrics of a server, checked by `promtool` if it is there."""
    answer = get(url, path)
    assert answer.status == 200, answer
    assert answer.kind.startswith("text/plain; version=0.0.4")
    if PROMTOOL is not None:
        checked = subprocess.run(
            [PROMTOOL, "check", "metrics"], input=answer.text, text=True, capture_output=True,
            check=False,
        )  # fmt: skip
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    return Scraped(answer.text)


def url_of(command: Running) -> str:
    """Return the URL that a command prints first."""
    line = command.line()
    assert line.startswith("metrics at http://127.0.0.1:"), (line, command.end())
    return line.removeprefix("metrics at ").removesuffix("/metrics")


def await_value(url: str, wanted: float, name: str, **labels: str) -> Scraped:
    """Wait until a metric has a value; return all metrics."""

    def look() -> Scraped | None:
        seen = scrape(url)
        return seen if seen.value(name, **labels) == wanted else None

    found = eventually(look, f"{name} {labels} is {wanted}")
    assert found is not None
    return found
