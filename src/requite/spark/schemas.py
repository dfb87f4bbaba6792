"""The tables of the pipeline, column by column.

Types are Spark's DDL. `request_id` is the call id in hexadecimal (32 digits), `client` its first
16 digits; `log` is `ROLE-NAME`. Times are UTC, to the microsecond. A column that does not apply is
null.
"""

from __future__ import annotations

from typing import Final

SCHEMA_VERSION: Final = 1

BRONZE_EVENTS: Final = """
    schema_version int, log string, segment bigint, byte_offset bigint, seq bigint, ts timestamp,
    kind string, request_id string, service string, client string, broker string, worker string,
    attempt int, outcome string, error_class string, bytes bigint, date date,
    role string, deadline timestamp, reason string, gap_s double, busy int, capacity int,
    dropped bigint
"""

# What `format("requite")` yields: `raw` is null but for what does not decode; `reason` says why.
SOURCE: Final = f"{BRONZE_EVENTS}, raw binary"

# What it yields with `log=titanic`: the requests that a Titanic keeps. `state` is waiting,
# answered, poisoned or, for a place in the log where nothing can be read, unreadable; `reason` says
# why.
TITANIC: Final = """
    uuid string, service string, state string, attempts int, submitted_at timestamp,
    answered_at timestamp, size bigint, reply_size bigint, reason string, body binary, reply binary
"""

BRONZE_QUARANTINE: Final = """
    log string, segment bigint, byte_offset bigint, raw binary, reason string
"""

# Which request ids were told of on a day: a row per client and share that was read.
BRONZE_IDS: Final = """
    client string, first_id string, last_id string, day date
"""

SILVER_REQUESTS: Final = """
    request_id string, service string, client string, accepted_at timestamp, started_at timestamp,
    finished_at timestamp, outcome string, outcomes int, attempts int, redeliveries int,
    queue_ms double, service_ms double, total_ms double, worker string, date date,
    deadline timestamp, error_class string, reason string
"""

SILVER_ATTEMPTS: Final = """
    request_id string, attempt int, worker string, delivered_at timestamp, started_at timestamp,
    ended_at timestamp, result string, busy_ms double, service string, date date
"""

SILVER_WAITS: Final = """
    request_id string, service string, begin_at timestamp, end_at timestamp, deadline timestamp,
    date date
"""

SILVER_HEARTBEATS: Final = """
    worker string, service string, ts timestamp, gap_s double, busy int, capacity int, date date,
    kind string
"""

SILVER_CLOCKS: Final = """
    log string, other string, at_least_us bigint, at_most_us bigint
"""

GOLD_SERVICE_MINUTE: Final = """
    minute timestamp, service string, accepted bigint, replied bigint, failed bigint,
    retries bigint, duplicates bigint, p50 double, p95 double, p99 double, mean_ms double, date date
"""

GOLD_LATENCY_HISTOGRAM: Final = """
    minute timestamp, service string, bucket int, upper_ms double, n bigint, date date
"""

GOLD_QUEUE_DEPTH: Final = """
    minute timestamp, service string, max_depth bigint, avg_depth double, oldest_age_s double,
    date date
"""

GOLD_WORKER_LIVENESS: Final = """
    worker string, service string, first_seen timestamp, last_seen timestamp, gaps bigint,
    longest_gap_s double, busy_fraction double, status string
"""

GOLD_CAPACITY: Final = """
    window timestamp, service string, arrival_rate double, service_s double, busy_servers double,
    in_system double, workers int, utilisation double, predicted_wait_ms double,
    littles_law_gap double, servers int, measured_wait_ms double, date date
"""

GOLD_RIGHTSIZING: Final = """
    group string, current int, recommended int, target_utilisation double, slots int,
    timeout_ms bigint, reason string
"""

AUDIT_VERDICTS: Final = """
    request_id string, service string, verdict string, evidence string, date date
"""

AUDIT_CONTRADICTIONS: Final = """
    request_id string, service string, kind string, evidence string, date date
"""

POISON: Final = """
    service string, error_class string, fingerprint string, n bigint, first_seen timestamp,
    last_seen timestamp, sample_request_id string
"""

SIM_RUNS: Final = """
    seed bigint, scenario string, status string, steps bigint, elapsed_ms double, error string
"""

SIM_VIOLATIONS: Final = """
    seed bigint, scenario string, status string, steps bigint, elapsed_ms double, error string,
    invariant string, detail string, replay string
"""

# What the streaming audit raises: `kind` is one of `requite.spark.watch.case.Alert`.
ALERTS: Final = """
    request_id string, service string, kind string, deadline timestamp, noticed_at timestamp,
    evidence string
"""

# One row per run that came to its end: what it was over, what the audit came to, and (as JSON) how
# far the run had come and which version of each table it left.
RUNS: Final = """
    run bigint, began_at timestamp, ended_at timestamp, as_of timestamp, new_events bigint,
    accepted bigint, exactly_one bigint, violations bigint, complete boolean, state string,
    versions string
"""


def columns_of(ddl: str) -> dict[str, str]:
    """Return the type of each column of one of these tables, in order."""
    pairs = (column.split() for column in ddl.split(","))
    return {name: kind for name, kind in pairs}  # noqa: C416 - says that there are two
