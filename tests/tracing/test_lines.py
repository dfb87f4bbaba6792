"""Log lines with the traces of requests."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.cluster import Cluster
from tests.tracing.conftest import MakeSpans
from tests.tracing.test_spans import again

import requite
from requite.cli.logs import JsonLines
from requite.errors import RemoteFailure
from requite.worker import service

_log = logging.getLogger("tests.shop")


class Lines(logging.Handler):
    """Keeps lines of JSON, decoded."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[dict[str, Any]] = []
        self.setFormatter(JsonLines())

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append(json.loads(self.format(record)))


@pytest.fixture
def lines() -> Iterator[list[dict[str, Any]]]:
    handler = Lines()
    logging.getLogger().addHandler(handler)
    yield handler.kept
    logging.getLogger().removeHandler(handler)


@service("it")
async def fails(request: requite.Request) -> bytes:
    _log.warning("%s is out of stock", request.body.decode())
    raise ValueError("out of stock")


@service("it")
def fails_in_a_thread(request: requite.Request) -> bytes:
    _log.warning("%s is out of stock", request.body.decode())
    raise ValueError("out of stock")


@pytest.mark.parametrize("handler", [fails, fails_in_a_thread])
@pytest.mark.parametrize("share", [0.0, 1.0])
async def test_lines_of_a_handler_and_of_its_failure_have_the_trace(
    make_spans: MakeSpans,
    cluster: Cluster,
    lines: list[dict[str, Any]],
    handler: Any,
    share: float,
) -> None:
    spans = make_spans(share)
    await again(cluster)
    await cluster.worker(handler)
    client = await cluster.client()
    with spans.span("the caller") as caller, pytest.raises(RemoteFailure) as failure:
        await client.call(b"tea")
    trace = f"{caller.get_span_context().trace_id:032x}"
    own, failed = lines
    assert (own["message"], own["trace_id"]) == ("tea is out of stock", trace)
    assert (failed["message"], failed["trace_id"]) == ("a handler of it failed", trace)
    assert failed["request_id"] == failure.value.request_id


async def test_lines_without_a_trace_have_no_id(
    cluster: Cluster, lines: list[dict[str, Any]]
) -> None:
    await cluster.worker(fails)
    with pytest.raises(RemoteFailure):
        await (await cluster.client()).call(b"tea")
    assert [("trace_id" in each, "request_id" in each) for each in lines] == [
        (False, False),
        (False, True),
    ]
