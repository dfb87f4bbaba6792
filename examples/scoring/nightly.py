"""The job: score a table of payments. python nightly.py URL PAYMENTS RESULT NIGHT"""

from __future__ import annotations

import sys

from pyspark.sql.functions import struct

import requite.spark
from requite.spark.session import local_session


def main(url: str, payments: str, result: str, night: str) -> None:
    """Call the service for each payment; write scores and failures as tables, and print a summary.

    NIGHT names the job. A second run for the same night sends the same idempotency keys.
    """
    spark = local_session("nightly-scoring", cores=2)
    try:
        answered = requite.spark.call_to(
            spark.read.parquet(payments),
            f"{result}/answers",
            url,
            mode="overwrite",
            body=struct("amount", "country", "hour", "tags"),
            returns="risk DECIMAL(5,4), reasons ARRAY<STRING>",
            key="payment_id",
            job=f"scoring-{night}",
            timeout=10,
            retry_on=("CallTimeout", "NoService"),
        )
        scores = answered.where("status = 'OK'").select("payment_id", "amount", "reply.*")
        failures = answered.where("status <> 'OK'").select(
            "payment_id", "status", "error", "error_data", "may_have_executed"
        )
        scores.write.mode("overwrite").parquet(f"{result}/scores")
        failures.write.mode("overwrite").parquet(f"{result}/failures")
        answered.groupBy("status").count().orderBy("status").show()
        scores.orderBy("risk", "payment_id", ascending=[False, True]).limit(3).show(truncate=False)
        failures.orderBy("payment_id").drop("may_have_executed").show(truncate=False)
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
