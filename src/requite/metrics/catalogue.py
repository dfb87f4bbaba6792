"""Every metric: its name, kind, labels and meaning.

`docs/reference/metrics.md` is made from this file. Names follow Prometheus: counters end with
`_total`, times are in seconds, sizes in bytes. Names, kinds and labels stay:
docs/topics/stability.md.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class Kind(StrEnum):
    """Kinds of metrics. A counter only grows, and begins again with its process."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Described(NamedTuple):
    """A metric."""

    name: str
    kind: Kind
    about: str
    labels: tuple[str, ...] = ()


_COUNTER, _GAUGE, _HISTOGRAM = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM
_SERVICE: Final = ("service",)

# --- services of a broker -------------------------------------------------------------------------
ACCEPTED: Final = Described(
    "requite_requests_accepted_total", _COUNTER, "Requests that the broker accepted.", _SERVICE
)
ENDED: Final = Described(
    "requite_requests_ended_total",
    _COUNTER,
    "Accepted requests that ended, by status: ok, failed, expired, worker_lost and so on.",
    ("service", "status"),
)
REDELIVERED: Final = Described(
    "requite_requests_redelivered_total",
    _COUNTER,
    "Attempts after the first: requests given to another worker, since theirs was lost or silent.",
    _SERVICE,
)
RECEIVED: Final = Described(
    "requite_request_bytes_total",
    _COUNTER,
    "Bytes of the bodies of accepted requests; each further frame of a body counts 48 more.",
    _SERVICE,
)
SENT: Final = Described(
    "requite_reply_bytes_total", _COUNTER, "Bytes of the bodies of final replies.", _SERVICE
)
TOOK: Final = Described(
    "requite_request_duration_seconds",
    _HISTOGRAM,
    "Time from the acceptance of a request to its reply, for requests that ended with ok.",
    _SERVICE,
)
QUEUED: Final = Described(
    "requite_requests_queued", _GAUGE, "Requests that wait for a worker.", _SERVICE
)
UNSERVED: Final = Described(
    "requite_requests_unserved",
    _GAUGE,
    "Requests that wait for a worker of a service that has none; for `other`, the sum of them.",
    _SERVICE,
)
IN_PROGRESS: Final = Described(
    "requite_requests_in_progress", _GAUGE, "Requests at a worker.", _SERVICE
)
OLDEST: Final = Described(
    "requite_oldest_queued_seconds",
    _GAUGE,
    "Time since the acceptance of the request that has waited longest in the queue; 0 if none"
    " waits.",
    _SERVICE,
)
WORKERS: Final = Described(
    "requite_workers",
    _GAUGE,
    "Workers: idle, busy, draining, or blocked (they do not read).",
    ("service", "state"),
)
PAUSED: Final = Described(
    "requite_service_paused",
    _GAUGE,
    "1 while an operator has paused the service; for `other`, how many are paused.",
    _SERVICE,
)

# --- brokers --------------------------------------------------------------------------------------
REFUSED: Final = Described(
    "requite_broker_refused_total",
    _COUNTER,
    "Requests that were never accepted, by status: overloaded (a limit is reached), denied,"
    " shutting_down.",
    ("status",),
)
DENIED: Final = Described(
    "requite_broker_denied_total",
    _COUNTER,
    "What peers had no right to, by verb: call, serve, act, admin, connect, call id. For quota, the"
    " seconds in which a quota was exceeded.",
    ("verb",),
)
PEERS: Final = Described(
    "requite_broker_peers",
    _GAUGE,
    "Connected peers: clients, workers, and newcomers that have not said what they are.",
    ("role",),
)
UNREAD: Final = Described(
    "requite_broker_unread_clients",
    _GAUGE,
    "Clients that the broker does not read from, because a limit is reached.",
)
SERVICES: Final = Described("requite_broker_services", _GAUGE, "Services that the broker knows.")
SERVICES_MAX: Final = Described(
    "requite_broker_services_max", _GAUGE, "The limit of services (--services-max)."
)
PENDING: Final = Described(
    "requite_broker_pending_requests", _GAUGE, "Requests without a final reply."
)
PENDING_BYTES: Final = Described(
    "requite_broker_pending_bytes", _GAUGE, "Memory of the requests without a final reply."
)
PENDING_BYTES_MAX: Final = Described(
    "requite_broker_pending_bytes_max", _GAUGE, "The limit of that memory (--pending-bytes-max)."
)
PAIR_ACTIVE: Final = Described(
    "requite_pair_active", _GAUGE, "1 if this broker of a pair serves, else 0."
)
PAIR_PEER_SILENT: Final = Described(
    "requite_pair_peer_silent", _GAUGE, "1 if the other broker of the pair counts as dead, else 0."
)
PAIR_EPOCH: Final = Described(
    "requite_pair_epoch", _GAUGE, "The epoch of the pair, which grows with each fail-over."
)

# --- Titanic --------------------------------------------------------------------------------------
STORED: Final = Described(
    "requite_titanic_requests",
    _GAUGE,
    "Stored requests: waiting, sent (at a service), answered, or poisoned.",
    ("state",),
)
STORING: Final = Described(
    "requite_titanic_storing", _GAUGE, "Orders to the store that are not finished."
)
STORE_BYTES: Final = Described("requite_titanic_store_bytes", _GAUGE, "Size of the store.")
STORE_LIVE_BYTES: Final = Described(
    "requite_titanic_store_live_bytes", _GAUGE, "Bytes of the store that are still needed."
)
STORE_FAILED: Final = Described(
    "requite_titanic_store_failed",
    _GAUGE,
    "1 while the store cannot be written and new requests are refused, else 0.",
)
REPLICA_BEHIND: Final = Described(
    "requite_titanic_replica_behind_records", _GAUGE, "Records that the replica lacks."
)

# --- workers --------------------------------------------------------------------------------------
HANDLED: Final = Described(
    "requite_worker_handled_total",
    _COUNTER,
    "Requests whose handlers ended: ok, failed, or cancelled (nobody waited any more).",
    ("service", "status"),
)
HANDLER_TOOK: Final = Described(
    "requite_worker_duration_seconds", _HISTOGRAM, "How long handlers ran.", _SERVICE
)
RUNNING: Final = Described(
    "requite_worker_running", _GAUGE, "Requests whose handlers run.", _SERVICE
)
WAITING: Final = Described(
    "requite_worker_waiting", _GAUGE, "Requests that wait in the worker for a handler.", _SERVICE
)

# --- queues and devices ---------------------------------------------------------------------------
QUEUE_REQUESTS: Final = Described(
    "requite_queue_requests_total", _COUNTER, "Requests that the queue received."
)
QUEUE_REPLIES: Final = Described(
    "requite_queue_replies_total", _COUNTER, "Replies that the queue passed on."
)
QUEUE_DROPPED: Final = Described(
    "requite_queue_dropped_total", _COUNTER, "Messages that the queue dropped.", ("reason",)
)
QUEUE_CLIENTS: Final = Described("requite_queue_clients", _GAUGE, "Connected clients.")
QUEUE_WAITING: Final = Described(
    "requite_queue_waiting", _GAUGE, "Requests that wait for a worker."
)
QUEUE_WORKERS: Final = Described(
    "requite_queue_workers",
    _GAUGE,
    "Connected workers: unready (they have not sent READY), idle, or busy.",
    ("state",),
)
DEVICE_REQUESTS: Final = Described(
    "requite_device_requests_total", _COUNTER, "Requests that the device passed on."
)
DEVICE_REPLIES: Final = Described(
    "requite_device_replies_total", _COUNTER, "Replies that the device passed on."
)
DEVICE_DROPPED: Final = Described(
    "requite_device_dropped_total", _COUNTER, "Messages that the device dropped.", ("reason",)
)
DEVICE_CHANNELS: Final = Described(
    "requite_device_channels",
    _GAUGE,
    "Connections at the front (clients) and at the back (services).",
    ("side",),
)
DEVICE_BLOCKED: Final = Described(
    "requite_device_blocked_channels", _GAUGE, "Connections that do not read.", ("side",)
)
DEVICE_HELD: Final = Described(
    "requite_device_held", _GAUGE, "Requests that wait for a connection at the back."
)

# --- gateways -------------------------------------------------------------------------------------
GATEWAY_ANSWERED: Final = Described(
    "requite_gateway_answered_total",
    _COUNTER,
    "HTTP requests that were answered, by status; 499: the client disconnected before the end.",
    ("code",),
)
GATEWAY_TOOK: Final = Described(
    "requite_gateway_duration_seconds",
    _HISTOGRAM,
    "Time from an HTTP request to the end of its answer.",
)
GATEWAY_IN_PROGRESS: Final = Described(
    "requite_gateway_in_progress", _GAUGE, "Calls that are being answered."
)

# --- managers of pools ----------------------------------------------------------------------------
_POOL: Final = ("pool",)
POOL_ACTIVE: Final = Described(
    "requite_pool_active", _GAUGE, "Whether this manager is active.", _POOL
)
POOL_STANDBY: Final = Described(
    "requite_pool_standby",
    _GAUGE,
    "Whether this manager stands by while another one is active; it is not ready then.",
    _POOL,
)
POOL_GROUPS: Final = Described(
    "requite_pool_groups", _GAUGE, "Groups in the target set, by status.", ("pool", "status")
)
POOL_GROUPS_MAX: Final = Described("requite_pool_groups_max", _GAUGE, "Maximum of groups.", _POOL)
POOL_RUNNING_GROUPS: Final = Described(
    "requite_pool_running_groups", _GAUGE, "Groups that have workers.", _POOL
)
POOL_WORKERS: Final = Described(
    "requite_pool_workers", _GAUGE, "Workers, if the driver counts them.", _POOL
)
POOL_FAILING_GROUPS: Final = Described(
    "requite_pool_failing_groups", _GAUGE, "Groups in back-off after failures.", _POOL
)
POOL_ORPHANS: Final = Described(
    "requite_pool_orphans", _GAUGE, "Orphaned requests that wait for their queue.", _POOL
)
POOL_ORPHANS_FORWARDED: Final = Described(
    "requite_pool_orphans_forwarded_total",
    _COUNTER,
    "Orphaned requests republished to their queue.",
    _POOL,
)
POOL_DEAD_LETTERS: Final = Described(
    "requite_pool_dead_letters_total", _COUNTER, "Dead letters, by reason.", ("pool", "reason")
)
POOL_POISONED: Final = Described(
    "requite_pool_poisoned_total", _COUNTER, "Requests kept in the poison queue.", _POOL
)

# --- shippers of journals -------------------------------------------------------------------------
SHIP_SEGMENTS: Final = Described(
    "requite_ship_segments_total",
    _COUNTER,
    "Segments that were copied; one that grows counts each time.",
)
SHIP_BYTES: Final = Described("requite_ship_bytes_total", _COUNTER, "Bytes that were copied.")
SHIP_LOGS: Final = Described("requite_ship_logs", _GAUGE, "Logs that the shipper has found.")
SHIP_FAILED: Final = Described(
    "requite_ship_failed", _GAUGE, "1 if the last pass over the journal failed, else 0."
)
SHIP_SINCE_SUCCESS: Final = Described(
    "requite_ship_since_success_seconds",
    _GAUGE,
    "Time since the end of the last pass that succeeded; before the first one, since the start.",
)

# --- streaming audits -----------------------------------------------------------------------------
WATCH_BATCHES: Final = Described(
    "requite_watch_batches_total", _COUNTER, "Batches that the query has finished."
)
WATCH_ROWS: Final = Described(
    "requite_watch_rows_total", _COUNTER, "Rows of the journal that these batches read."
)
WATCH_SINCE_BATCH: Final = Described(
    "requite_watch_since_batch_seconds",
    _GAUGE,
    "Time since the end of the last batch; before the first one, since the start.",
)
WATCH_ALERTS: Final = Described(
    "requite_watch_alerts_total", _COUNTER, "Alerts, by kind: MISSED_DEADLINE and so on.", ("kind",)
)

# --- every process --------------------------------------------------------------------------------
INFO: Final = Described(
    "requite_info",
    _GAUGE,
    "1; the labels have the version of requite, its build (pure or compiled), and the command.",
    ("version", "build", "command"),
)
READY: Final = Described("requite_ready", _GAUGE, "What /ready says: 1 if it can work, else 0.")
LOOP_LAG: Final = Described(
    "requite_loop_lag_seconds",
    _HISTOGRAM,
    "How late the event loop was for a timer, twice a second.",
)

GROUPS: Final = {
    "Services of a broker": (
        ACCEPTED,
        ENDED,
        REDELIVERED,
        TOOK,
        RECEIVED,
        SENT,
        QUEUED,
        UNSERVED,
        IN_PROGRESS,
        OLDEST,
        WORKERS,
        PAUSED,
    ),
    "Brokers": (
        REFUSED,
        DENIED,
        PEERS,
        UNREAD,
        SERVICES,
        SERVICES_MAX,
        PENDING,
        PENDING_BYTES,
        PENDING_BYTES_MAX,
        PAIR_ACTIVE,
        PAIR_PEER_SILENT,
        PAIR_EPOCH,
    ),
    "Titanic, alone or inside a broker": (
        STORED,
        STORING,
        STORE_BYTES,
        STORE_LIVE_BYTES,
        STORE_FAILED,
        REPLICA_BEHIND,
    ),
    "Workers": (HANDLED, HANDLER_TOOK, RUNNING, WAITING),
    "Queues": (
        QUEUE_REQUESTS,
        QUEUE_REPLIES,
        QUEUE_DROPPED,
        QUEUE_CLIENTS,
        QUEUE_WAITING,
        QUEUE_WORKERS,
    ),
    "Devices": (
        DEVICE_REQUESTS,
        DEVICE_REPLIES,
        DEVICE_DROPPED,
        DEVICE_CHANNELS,
        DEVICE_BLOCKED,
        DEVICE_HELD,
    ),
    "Gateways": (GATEWAY_ANSWERED, GATEWAY_TOOK, GATEWAY_IN_PROGRESS),
    "Managers of pools": (
        POOL_ACTIVE,
        POOL_STANDBY,
        POOL_GROUPS,
        POOL_GROUPS_MAX,
        POOL_RUNNING_GROUPS,
        POOL_WORKERS,
        POOL_FAILING_GROUPS,
        POOL_ORPHANS,
        POOL_ORPHANS_FORWARDED,
        POOL_DEAD_LETTERS,
        POOL_POISONED,
    ),
    "Shippers of journals (requite journal ship --follow)": (
        SHIP_SEGMENTS,
        SHIP_BYTES,
        SHIP_LOGS,
        SHIP_FAILED,
        SHIP_SINCE_SUCCESS,
    ),
    "Streaming audits (requite spark watch)": (
        WATCH_BATCHES,
        WATCH_ROWS,
        WATCH_SINCE_BATCH,
        WATCH_ALERTS,
    ),
    "Every process": (INFO, READY, LOOP_LAG),
}
"""All metrics, by what has them."""
