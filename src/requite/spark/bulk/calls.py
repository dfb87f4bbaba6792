"""Bulk calls: each row of a DataFrame is one request to a service, each reply is a row.

    replies = requite.spark.call(
        orders, "mdp://broker:5555/price", body="order", key="order_id", timeout=5
    )
    replies.write.parquet("prices")      # write it first: each action makes all calls again

No bad row and no failed request ends the job: columns beside those of the input say how each
request ended.

| column | |
|---|---|
| `reply` binary | the reply's body (its frames joined); null unless `status` is OK |
| `status` string | `OK`, the class of the error (`CallTimeout`, `NoService`, ...; see `requite.errors`), or `BadRow` for rows that cannot be sent |
| `attempts` int | how often it was sent, or dispatched to a worker; 0: never |
| `elapsed_ms` double | from sending to the outcome |
| `may_have_executed` boolean | False only if no handler can have started |
| `error` string | the error message |
| `idempotency_key` string | the request's id (a UUID), which the handler reads as the 16 bytes of `request.idempotency_key` |

A struct as the body is the message of a method of a typed service (`requite.Service`):

    requite.spark.call(
        orders, "mdp://broker:5555/orders.price", body=struct("sku", "count"),
        returns="price DECIMAL(10,2), note STRING", key="order_id",
    )

Then `reply` is a value of the type `returns`, `status` may be the name of a declared error,
`BadRequest` or `BadReply`, and there is one column more:

| column | |
|---|---|
| `error_data` string | the fields of a declared error as JSON, or `path` and `reason` of a misfit |

Spark runs user code again when a task fails, when it speculates, and for each action. Ids are
computed from the job and the row's `key`, so repetitions carry the same id: a service that
remembers ids can answer a repetition without executing it twice.
"""  # noqa: E501 - a table

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from pyspark.sql import functions as F

from requite.errors import ConfigurationError
from requite.spark.bulk import plan as planning
from requite.spark.bulk.ids import job_id
from requite.spark.bulk.plan import BODY_TYPES, KEY_TYPES, WINDOW, Plan
from requite.spark.bulk.schema import schema_of
from requite.spark.bulk.slots import task_slots as slots_of
from requite.spark.bulk.task import call_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, Observation
    from pyspark.sql.types import DataType

    from requite.spark.bulk.progress import Progress

_BODY: Final = "__requite_body"
_KEY: Final = "__requite_key"


def call(
    df: DataFrame,
    url: str,
    *,
    body: str | Column,
    returns: str | DataType | None = None,
    key: str | Column | None = None,
    service: str | None = None,
    timeout: float = 30.0,
    job: str | UUID | None = None,
    key_by_position: bool = False,
    window: int = WINDOW,
    in_flight_max: int | None = None,
    task_slots: int | None = None,
    prefix: str = "",
    idempotent: bool = True,
    give_up: bool = True,
    retry_on: Iterable[str] = (),
    rate: float | None = None,
    observation: Observation | str | None = None,
    progress: Progress | None = None,
    **client: Any,
) -> DataFrame:
    """Return `df` with a reply for each row. Lazy: **write it first**, or use `call_to`.

    Every action on the result, `count` and `show` included, sends requests, and `limit(1)` still
    sends a whole Arrow batch of them.

    - `body`: a column of binary, string (sent as UTF-8) or array<binary> (frames). A struct, or any
      other type with `returns`, is the message of a method of a typed service.
    - `returns`: the type of `reply` in DDL ("price DECIMAL(10,2), note STRING"). None, for a
      struct: derived from the description of the service.
    - `key`: a column of string, binary or whole numbers that identifies the row within the job.
      Rows with equal keys are the same request: within an Arrow batch it is sent once and all of
      them get its reply (`BadRow` for those whose bodies differ); beyond, the service is asked
      again under the same id. A null key makes a `BadRow`.
    - `key_by_position`: without a key, identify rows by partition and position. This is stable only
      if Spark computes the same partitions in the same order again, so it is off by default.
    - `job`: the namespace of the keys. The same name and key give the same id in every program;
      None: a new random namespace for each call of this function.
    - `timeout`: seconds for each request, from when it is sent. The row ends at most a tenth of
      that later, if the broker has not said by then whether a worker had it.
    - `window`: maximum number of requests in flight per task.
    - `in_flight_max`: maximum number of requests in flight over all tasks; divided by `task_slots`,
      the number of tasks that may run at a time (None: from Spark's settings).
    - `prefix`: prefix of the names of the added columns.
    - `idempotent`: False: a task never sends a request again that may have run.
    - `give_up`: once all requests in flight have ended without reaching a worker, the service is
      down: the other rows, and those of tasks that start later in the same Python worker, fail at
      once with the same error instead of each waiting for its timeout.
    - `retry_on`: statuses after which a row is sent again under the same id, in up to
      `retry.attempts` requests (3) with the pauses of `retry`: CallTimeout, NoService, Overloaded,
      RemoteFailure, TransportError, WorkerLost. With `idempotent=False`, a request that may have
      run is never sent again.
    - `rate`: maximum requests per second over all tasks; divided by `task_slots`.
    - `observation`: collects `metrics` of the first action that ends.
    - `progress`: shows the number of ended rows by status while the job runs.
    - `client`: `retry`, `heartbeat`, `message_size_max`, as for `requite.AsyncClient`.

    Raises `ConfigurationError` for invalid parameters, before anything is sent. For a typed
    service it also raises `RemoteViolation` for a description that cannot be read, and the
    `CallError` of asking for it.
    """
    _check_frame(df)
    planning.check_counts(window=window, in_flight_max=in_flight_max, task_slots=task_slots)
    reply = planning.type_given(returns)
    given, body_at, key_at = _with_request(df, body, key, key_by_position, is_typed=bool(reply))
    body_type = given.schema.fields[body_at].dataType
    planning.check_clash(df.columns, prefix, typed=planning.is_typed(body_type, reply))
    if in_flight_max is not None or rate is not None:
        task_slots = task_slots or slots_of(df.sparkSession)
        window = planning.share(in_flight_max, task_slots, window)
        rate = planning.share_of_rate(rate, task_slots)
    if progress is not None:
        progress.check(df.sparkSession.conf.get("spark.master", None) or "")
    plan = planning.make_plan(
        Plan(
            planning.connection(url, service, 2 * window, client),
            job_id(job),
            body=body_at,
            key=key_at,
            kept=len(df.columns),
            timeout_s=timeout,
            window=window,
            idempotent=idempotent,
            give_up=give_up,
            retry_on=frozenset([retry_on] if isinstance(retry_on, str) else retry_on),
            rate=rate,
            report_to=None if progress is None else progress.folder,
            prefix=prefix,
        ),
        body_type,
        reply,
    )
    answered = given.mapInArrow(_task(plan), schema_of(df.schema, plan))
    if observation is None:
        return answered
    aggregates = metrics(prefix)
    if plan.contract is not None:
        aggregates.pop()  # the bytes of replies
    return answered.observe(observation, *aggregates)


def call_to(
    df: DataFrame,
    path: str,
    url: str,
    *,
    format: str = "parquet",
    mode: str = "error",
    **options: Any,
) -> DataFrame:
    """Make the calls once, write rows and replies to `path`, and return what was written.

    The returned DataFrame reads the files, so it can be used any number of times. `format` and
    `mode` are those of `DataFrame.write`; `options` are those of `call`. Spark's jobs have the tag
    `requite-JOB`, or `requite-call` without a `job`, while the calls are made.
    """
    answered, spark = call(df, url, **options), df.sparkSession
    tag = f"requite-{options.get('job') or 'call'}".replace(",", " ")
    spark.addTag(tag)
    try:
        answered.write.format(format).mode(mode).save(path)
    finally:
        spark.removeTag(tag)
    return spark.read.format(format).load(path)


def metrics(prefix: str = "") -> list[Column]:
    """Return the aggregates for `DataFrame.observe`, during the calls or on their result.

    Counts of `rows`, `ok`, `failed` and `bad` (never sent) ones, and of failed ones that
    `may_have_executed`; `retries`; milliseconds of the mean and the slowest request; bytes of all
    replies.
    """
    status, attempts = F.col(f"{prefix}status"), F.col(f"{prefix}attempts")
    elapsed_ms = F.col(f"{prefix}elapsed_ms")
    is_ok, is_bad = status == "OK", status == "BadRow"
    may_have_executed = ~is_ok & F.col(f"{prefix}may_have_executed")
    return [
        F.count(F.lit(1)).alias("rows"),
        F.count_if(is_ok).alias("ok"),
        F.count_if(~is_ok & ~is_bad).alias("failed"),
        F.count_if(is_bad).alias("bad"),
        F.count_if(may_have_executed).alias("may_have_executed"),
        F.sum(F.greatest(attempts - 1, F.lit(0))).alias("retries"),
        F.avg(F.when(~is_bad, elapsed_ms)).alias("mean_ms"),
        F.max(elapsed_ms).alias("slowest_ms"),
        F.sum(F.length(f"{prefix}reply")).alias("reply_bytes"),
    ]


# --- the DataFrame of the tasks -------------------------------------------------------------------
def _check_frame(df: object) -> None:
    if hasattr(df, "mapInArrow"):
        return
    kind = f"{type(df).__module__}.{type(df).__qualname__}"
    remedy = "convert data in memory with spark.createDataFrame(...)"
    if hasattr(df, "to_spark"):
        remedy = (
            "call df.to_spark(index_col='id') first, which keeps the index as a column to use as"
            " the key, and .pandas_api() on the result"
        )
    raise ConfigurationError(f"bulk calls require a Spark DataFrame, not a {kind}: {remedy}")


def _with_request(
    df: DataFrame,
    body: str | Column,
    key: str | Column | None,
    key_by_position: bool,
    *,
    is_typed: bool,
) -> tuple[DataFrame, int, int | None]:
    """Add columns for a computed body or key; return the DataFrame and the two column numbers."""
    if key is not None and key_by_position:
        raise ConfigurationError("pass either key or key_by_position, not both")
    if key is None and not key_by_position:
        raise ConfigurationError(
            "bulk calls require a key, since Spark may send each row several times: name the"
            " column that identifies a row (key=...), or pass key_by_position=True if"
            " partitions and their order never change"
        )
    given, body_at = _with_column(df, "body", body, _BODY, None if is_typed else BODY_TYPES)
    if key is None:
        return given, body_at, None
    given, key_at = _with_column(given, "key", key, _KEY, KEY_TYPES)
    return given, body_at, key_at


def _with_column(
    df: DataFrame, role: str, column: str | Column, alias: str, types: tuple[str, ...] | None
) -> tuple[DataFrame, int]:
    name = column if isinstance(column, str) else alias
    if not isinstance(column, str):
        df = df.select("*", column.alias(alias))
    elif name not in df.columns:
        raise ConfigurationError(
            f"no column {name!r} for the {role}; the columns are {', '.join(df.columns)}"
        )
    if types is not None:
        planning.check_type(role, name, df.schema[name].dataType, types)
    return df, df.columns.index(name)


def _task(plan: Plan) -> Any:
    def call_service(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return call_batches(batches, plan)

    return call_service
