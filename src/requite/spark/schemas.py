"""The tables of the pipeline, column by column: types (Spark's DDL) and meanings.

This is the only definition of names, types and meanings: lakes, Delta's log and
docs/reference/tables.md take them from here. `CONVENTIONS` apply to every table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from requite import __version__
from requite.spark.described_tables import Table

SCHEMA_VERSION: Final = 1

CONVENTIONS: Final = (
    "`request_id` is the call id as 32 hexadecimal digits, `client` its first 16.",
    "`log` names a log of the journal: ROLE-NAME, such as `broker-bd867aeb66f0b808`.",
    "Times are UTC, to the microsecond. `date` is a day in UTC; a table that has it is partitioned "
    "by it.",
    "Units are the last part of a name: `_us`, `_ms`, `_s`. Sizes are bytes.",
    "Null means that a value does not apply, or that no journal contains it.",
)


# --- bronze ---------------------------------------------------------------------------------------
BRONZE_EVENTS: Final = Table(
    "One row per event of the journal. `log`, `segment` and `byte_offset` together identify it.",
    """
    schema_version int: Version of the journal's rows; 1.
    log string: The log that has the event.
    segment bigint: The file of the log, by the number of its first record.
    byte_offset bigint: Where in that file the event is, in bytes.
    seq bigint: Number of the event in its log: the order in which events were written.
    ts timestamp: When it happened, by the clock of the process that wrote the log.
    kind string: What happened, such as `accepted`, `dispatched`, `started` or `answered`.
    request_id string: The request; null for events of workers and logs.
    service string: Name of the service; null where the event has none.
    client string: The client that made the request; null without a request.
    broker string: The broker that wrote the log; null in logs of other roles.
    worker string: The worker that the event is about, in hexadecimal; null where there is none.
    attempt int: Number of the client's attempt, or of the attempt at a worker, from 1; null where
        it does not apply.
    outcome string: Status of a reply or an end, such as `OK` or `FAILED`; null for other kinds.
    error_class string: Class of the error; null if there was none.
    bytes bigint: Size of the body of the request or reply; null for kinds without a body.
    date date: The day of `ts`.
    role string: Who wrote the log: `broker`, `client`, `worker`, `device` or `manager`.
    deadline timestamp: When the request expires, in events that accept or deliver it; null if it
        has no deadline.
    reason string: The reason, in words; null without one.
    gap_s double: In events of a worker's presence, the seconds since its last message.
    busy int: In events of a worker's presence, the requests that it is handling.
    capacity int: In events of a worker's presence, the requests that it accepts at once.
    dropped bigint: In events of kind `dropped`, the rows that the journal could not write.
    """,
)

SOURCE: Final = BRONZE_EVENTS.and_also(
    "One row per event, and one per row that does not decode, with the `reason`.",
    """
    raw binary: The bytes of a row that does not decode; null for all others.
    """,
)

# `state` is one of `requite.spark.durable.survey`.
TITANIC: Final = Table(
    "One row per request that a Titanic stores, and one per part of its log that cannot be read.",
    """
    uuid string: The request's id, assigned by the Titanic; null for a part that cannot be read.
    service string: Name of the service.
    state string: `waiting`, `answered`, `poisoned` or, for a part of the log that cannot be read,
        `unreadable`.
    attempts int: How many times the Titanic sent it to the service.
    submitted_at timestamp: When the Titanic stored the request.
    answered_at timestamp: When the Titanic stored the reply; null without a reply.
    size bigint: Bytes of the request; null if the request cannot be read.
    reply_size bigint: Bytes of the reply; null without a reply.
    reason string: Why a request is poisoned, or cannot be read; null for all others.
    body binary: The request.
    reply binary: The reply; null without one.
    """,
)

BRONZE_QUARANTINE: Final = Table(
    "One row per row of the journal that does not decode. Other tables do not contain it.",
    """
    log string: The log that has the row.
    segment bigint: The file of the log, by the number of its first record.
    byte_offset bigint: Where in that file the row is, in bytes.
    raw binary: The bytes that do not decode.
    reason string: Why they do not decode.
    """,
)

BRONZE_IDS: Final = Table(
    "One row per client, day and part of a log that was read at once: the range of request ids. "
    "Runs use it to find older events of a request.",
    """
    client string: First 16 digits of the ids.
    first_id string: The smallest of the request ids.
    last_id string: The largest of the request ids.
    day date: The day of the events.
    """,
)


# --- silver ---------------------------------------------------------------------------------------
SILVER_REQUESTS: Final = Table(
    "One row per request with its outcome, by the journal of its client if it keeps one, or else "
    "by that of its broker.",
    """
    request_id string: The request.
    service string: Name of the service.
    client string: The client that made the request.
    accepted_at timestamp: When the request was first accepted; null if no journal says it.
    started_at timestamp: When a handler first began, or without the worker's journal when the
        request was first dispatched; null if neither happened.
    finished_at timestamp: When the request ended; null while it is open.
    outcome string: How it ended: a status such as `OK` or `EXPIRED`, or the class of the error;
        null while it is open.
    ends int: How often it ended; 1 is correct.
    attempts int: How often brokers dispatched it, or without a broker how often its client sent it.
    redeliveries int: How often a broker redelivered it to another worker.
    queue_ms double: From its last acceptance by a broker to its dispatch; null if it was not
        dispatched.
    service_ms double: How long the handler ran, or without the worker's journal from dispatch to
        reply; null if neither is known.
    total_ms double: From `accepted_at` to `finished_at`; null if either is.
    worker string: The worker that had it last, in hexadecimal; null if none had it.
    date date: The day of its acceptance, or of its first event if it was never accepted.
    deadline timestamp: When it expires; null if it has no deadline.
    error_class string: Class of the error that ended it; null if none did.
    reason string: The reason of the outcome, in words; null without one.
    principal string: The user to whom its call id belongs, by the broker's access decisions; empty
        if no broker recorded one.
    """,
)

SILVER_ATTEMPTS: Final = Table(
    "One row per attempt at a worker to handle a request.",
    """
    request_id string: The request.
    attempt int: Which attempt, from 1.
    worker string: The worker, in hexadecimal.
    delivered_at timestamp: When the worker received it, or without the worker's journal when the
        broker dispatched it; null if neither journal says it.
    started_at timestamp: When the handler began; null if it did not, or the worker keeps no
        journal.
    ended_at timestamp: When the handler ended, or the broker withdrew the request; null while
        neither has happened.
    result string: The outcome, `REDELIVERED` or `ABANDONED`; null while it has not ended.
    busy_ms double: From the start of the handler, or from the delivery, to the end; null while it
        has not ended.
    service string: Name of the service; empty if no event has it.
    date date: The day of its first event.
    """,
)

SILVER_WAITS: Final = Table(
    "One row per wait of a request in a broker's queue, and one per acceptance by a broker.",
    """
    request_id string: The request.
    service string: Name of the service.
    begin_at timestamp: When the broker queued the request, or accepted it.
    end_at timestamp: When the request was dispatched or had ended; `begin_at` for an acceptance,
        null while the wait lasts.
    deadline timestamp: When the request expires; null if it has no deadline.
    date date: The day of `begin_at`.
    """,
)

SILVER_HEARTBEATS: Final = Table(
    "One row per heartbeat, arrival or departure of a worker, by its broker's journal.",
    """
    worker string: The worker, in hexadecimal.
    service string: Name of the service; empty if the event has none.
    ts timestamp: When the broker recorded it.
    gap_s double: Seconds since the worker's last message.
    busy int: Requests that it was handling.
    capacity int: Requests that it accepts at once.
    date date: The day of `ts`.
    kind string: `heartbeat`, `worker_joined`, `worker_lost` or `worker_drained`.
    """,
)

SILVER_ACCESS: Final = Table(
    "One row per access decision of a broker: a connection, request or worker that it admitted or "
    "denied, or a change of a user's rights.",
    """
    ts timestamp: When the broker decided.
    log string: The log of the broker.
    principal string: The user; for a denied connection its credential, such as `plain:shop`; empty
        if it has none.
    verb string: What was asked for: `connect`, `call`, `serve`, `titanic`, `pool`, `admin`, `act`,
        `quota` or `call id`; `rights` for a change of rights.
    object string: The name of the service; for `act` the user for whom a request was made; for
        `call id` the client whose request ids are meant; null where there is none.
    verdict string: `admitted`, `denied` or `changed`.
    reason string: The reason, in words; null without one.
    peer string: Address of the peer, such as `tcp://192.0.2.7:41234`; null if the decision has
        none.
    date date: The day of `ts`.
    """,
)

SILVER_CLOCKS: Final = Table(
    "One row per pair of logs: the difference of their clocks, by the requests that both contain.",
    """
    log string: The log whose clock is ahead, if the figures are positive.
    other string: The log that it is compared with.
    at_least_us bigint: The clock of `log` is ahead by at least this many microseconds.
    at_most_us bigint: The clock of `log` is ahead by at most this many microseconds. If less than
        `at_least_us`, a clock was set meanwhile.
    """,
)

# --- gold -----------------------------------------------------------------------------------------
GOLD_SERVICE_MINUTE: Final = Table(
    "One row per minute and service: load, failures and latency of the requests that were accepted "
    "in that minute.",
    """
    minute timestamp: Start of the minute.
    service string: Name of the service.
    accepted bigint: Requests that were accepted.
    replied bigint: Of these, those that ended with `OK`.
    failed bigint: Of these, those that ended with anything else.
    retries bigint: Attempts beyond the first, of all of them.
    duplicates bigint: Ends beyond the first, of all of them; 0 is correct.
    p50_ms double: Median of `total_ms`, at most 2 % too high; timeouts count; null if none has
        ended.
    p95_ms double: 95th percentile of `total_ms`, at most 2 % too high; null if none has ended.
    p99_ms double: 99th percentile of `total_ms`, at most 2 % too high; null if none has ended.
    mean_ms double: Mean of `total_ms`; null if none has ended.
    date date: The day of `minute`.
    """,
)

GOLD_LATENCY_HISTOGRAM: Final = Table(
    "One row per minute, service and bucket of latency. Add `n` to merge minutes or services.",
    """
    minute timestamp: Start of the minute in which the requests were accepted.
    service string: Name of the service.
    bucket int: Number of the bucket. Each ends 2 % above the one before.
    upper_ms double: The highest `total_ms` that is in the bucket.
    n bigint: Requests in the bucket.
    date date: The day of `minute`.
    """,
)

GOLD_QUEUE_DEPTH: Final = Table(
    "One row per minute and service: the requests that waited in the queues of brokers.",
    """
    minute timestamp: Start of the minute.
    service string: Name of the service.
    max_depth bigint: The most requests that waited at one instant.
    avg_depth double: Requests that waited, averaged over the whole minute.
    oldest_age_s double: The longest time that a request had waited by then, in seconds.
    date date: The day of `minute`.
    """,
)

GOLD_WORKER_LIVENESS: Final = Table(
    "One row per worker and service, over the whole time of the journal.",
    """
    worker string: The worker, in hexadecimal.
    service string: Name of the service.
    first_seen timestamp: When a broker received its first message.
    last_seen timestamp: When a broker received its last message.
    gaps bigint: How often it was silent for more than two heartbeat periods.
    longest_gap_s double: The longest time that it was silent, in seconds.
    busy_fraction double: Mean share of its capacity in use, from 0 to 1; null if it never sent a
        heartbeat.
    status string: `alive`, `silent`, `lost` (its broker considers it lost) or `drained` (it signed
        off).
    """,
)

GOLD_FAILURES: Final = Table(
    "One row per day, service and kind of failure that requests themselves may have caused.",
    """
    service string: Name of the service.
    error_class string: Class of the error, or the outcome of requests without one.
    fingerprint string: Digest of class and reason without numbers, ids and quotations: failures of
        one kind have the same.
    n bigint: Requests that failed in this way.
    first_seen timestamp: When the first of them ended.
    last_seen timestamp: When the last of them ended.
    sample_request_id string: The first of them.
    date date: Day in UTC to which the requests belong.
    """,
)

GOLD_CAPACITY: Final = Table(
    "One row per minute and service: the load of the workers, and the predictions of queueing "
    "theory for it.",
    """
    minute timestamp: Start of the minute.
    service string: Name of the service.
    arrival_rate double: Requests accepted per second (λ).
    service_s double: Mean seconds that a worker was busy with a request (S); null if unknown.
    busy_servers double: Handlers that were busy on average: λS.
    in_system double: Mean number of requests between acceptance and end, measured (L).
    workers int: The most workers that were present at one instant.
    utilisation double: `busy_servers` as a share of `servers`; null without servers.
    predicted_wait_ms double: Mean wait predicted by an M/M/c queue (Erlang C); null if the
        utilisation is at least 1, since the queue then grows without bound.
    littles_law_gap double: Difference between L and arrivals times latency, as a share of L; large
        while a queue grows or drains.
    servers int: Requests that the workers could handle at once (c), by each worker's observed
        maximum within ten minutes.
    measured_wait_ms double: Mean `queue_ms` of the requests; null if unknown.
    date date: The day of `minute`.
    """,
)

GOLD_RIGHTSIZING: Final = Table(
    "One row per service: recommended number of workers and client slots, and timeout of its "
    "callers, by the load of the last seven days.",
    """
    service string: Name of the service.
    current int: Workers in the newest minute.
    recommended int: Workers that it needs; null if no worker has answered a request.
    target_utilisation double: The share of their time that workers should be busy, from 0 to 1.
    slots int: Requests that all clients together must keep in flight; null if no reply was `OK`.
    timeout_ms bigint: Timeout for callers; null if no reply was `OK`.
    reason string: How the recommendation was computed, in words.
    """,
)

# --- audit ----------------------------------------------------------------------------------------
AUDIT_VERDICTS: Final = Table(
    "One row per request that was accepted, dispatched or ended: whether it ended exactly once.",
    """
    request_id string: The request.
    service string: Name of the service.
    verdict string: `EXACTLY_ONE`, `LATE`, `IN_FLIGHT`, `ONE_SIDED`, `UNDECIDED`, `MISSING`,
        `DUPLICATE_OUTCOME`, `ORPHAN` or `ACCEPTED_TWICE`.
    evidence string: Events of the request as JSON, in order: all of them, the newest of one in
        flight; null for `EXACTLY_ONE`.
    date date: The day of its acceptance, or of its first event if it was never accepted.
    """,
)

AUDIT_CONTRADICTIONS: Final = Table(
    "One row per request and kind of contradiction between the logs of client, broker and workers.",
    """
    request_id string: The request.
    service string: Name of the service.
    kind string: Kind of contradiction, such as `OUTCOMES_DIFFER` or `TWO_OWNERS`.
    evidence string: The first 200 events of the request as JSON, in order, from all logs.
    date date: The day of its acceptance, or of its first event if it was never accepted.
    """,
)

# --- runs, and tables outside of lakes ------------------------------------------------------------
RUNS: Final = Table(
    "One row per complete run of the pipeline: the rows that it read, and the result of its audit.",
    """
    run bigint: Number of the run.
    began_at timestamp: When it began.
    ended_at timestamp: When it ended.
    as_of timestamp: The instant of its verdicts; null if the journal was empty.
    new_events bigint: Events that it read for the first time.
    accepted bigint: Accepted requests, of all runs so far.
    exactly_one bigint: Those of them that ended exactly once, in time.
    violations bigint: Requests that violate the guarantee.
    complete boolean: Whether the journal contains everything that the verdicts depend on.
    state string: Its position in the journal and other state, as JSON for the next run.
    versions string: Version of each table at its end, and a digest of its files, as JSON.
    """,
)

# `kind` is one of `requite.spark.watch.watched_request.Alert`.
ALERTS: Final = Table(
    "One row per alert of `requite spark watch`.",
    """
    request_id string: The request.
    service string: Name of the service; null if no event has it.
    kind string: `MISSED_DEADLINE`, `ENDED_LATE`, `LATE`, `DUPLICATE_OUTCOME`, `ORPHAN` or
        `ACCEPTED_TWICE`.
    deadline timestamp: When the request expires; null if it has no deadline.
    noticed_at timestamp: When the alert was raised.
    evidence string: Events of the request as JSON, in order.
    """,
)

SIM_RUNS: Final = Table(
    "One row per seed of the simulator that `requite spark sweep` ran.",
    """
    seed bigint: The seed.
    scenario string: Name of the scenario, which decides the faults in the run.
    status string: `OK`, `VIOLATED`, `HUNG` or `CRASHED`.
    steps bigint: Events that the run took; null if it did not end.
    elapsed_ms double: How long the run took.
    error string: Traceback, exit code, or the position at its time-out; null if it ended.
    """,
)

SIM_VIOLATIONS: Final = SIM_RUNS.and_also(
    "One row per violation that `requite spark sweep` found, and per seed that hung or crashed.",
    """
    invariant string: The invariant that was violated; null for a seed that hung or crashed.
    detail string: What happened, and when; null for a seed that hung or crashed.
    replay string: The command that repeats the run.
    """,
)


TABLES: Final[Mapping[str, Table]] = {
    name.lower(): table for name, table in list(globals().items()) if isinstance(table, Table)
}
"""All tables, by name."""

LAKE: Final[Mapping[str, Table]] = {
    name: table
    for name, table in TABLES.items()
    if name not in ("source", "titanic", "alerts", "sim_runs", "sim_violations")
}
"""The tables of a lake, by name."""


def lake_digest() -> str:
    """Return a digest of the version of requite and the columns of the lake's tables."""
    lines = [__version__, *(f"{name}: {LAKE[name]}" for name in sorted(LAKE))]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def columns_of(ddl: str) -> dict[str, str]:
    """Return the type of each column of a table, in order."""
    pairs = (column.split() for column in ddl.split(","))
    return {name: kind for name, kind in pairs}  # noqa: C416 - shows the pairs
