"""The metrics of brokers: which values of labels are there before anything happened."""

from __future__ import annotations

import re

from tests.deploy.files import DEPLOY
from tests.metrics.scrape import Scraped

from requite.metrics.brokers import of_broker, of_services
from requite.metrics.families import Family, text_of
from requite.protocols.majordomo.census import NO_TALLY, Census, traffic_of
from requite.protocols.majordomo.parties import Service
from requite.request import Status

NEW = Census((), NO_TALLY, (0,) * len(Status), {}, 0, 0, 0, 0, 0, 0, 1, 1, False)


async def scraped(families: list[Family]) -> Scraped:
    return Scraped((await text_of(families)).decode())


async def test_what_alerts_name_is_there_before_it_happens() -> None:
    """Otherwise `increase()` does not see the first event."""
    families = [*of_broker(NEW), *await of_services([traffic_of(Service(b"echo"))], 0.0)]
    seen = await scraped(families)
    rules = (DEPLOY / "alerts.yml").read_text()
    named = set(re.findall(r'(requite_\w+_total)\{status="(\w+)"\}', rules))
    assert {status for _, status in named} == {"poisoned", "overloaded"}
    for name, status in named:
        labels = {"service": "echo"} if "requests" in name else {}
        assert seen.value(name, status=status, **labels) == 0
    for verb in ("call", "serve", "admin", "connect", "call id", "quota"):
        assert seen.value("requite_broker_denied_total", verb=verb) == 0


async def test_what_was_denied_is_shown_by_verb() -> None:
    seen = await scraped(of_broker(NEW._replace(denied={"call": 3, "quota": 2})))
    assert seen.value("requite_broker_denied_total", verb="call") == 3
    assert seen.value("requite_broker_denied_total", verb="quota") == 2
    assert seen.value("requite_broker_denied_total", verb="serve") == 0
