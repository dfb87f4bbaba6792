"""A plan for tests of the parts of bulk calls."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from requite.spark.bulk.plan import Connection, Plan

JOB = UUID(int=7)


def plan(**more: Any) -> Plan:
    connection = Connection("mdp://127.0.0.1:1/echo")
    settings = {"connection": connection, "body": 1, "key": 0, "kept": 2, "window": 3} | more
    return Plan(job=JOB, **settings)
