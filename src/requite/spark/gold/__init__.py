"""Gold: the tables for operators, one module per subject."""

from requite.spark.gold.capacity import gold_capacity
from requite.spark.gold.failures import gold_failures
from requite.spark.gold.latency import gold_latency_histogram, gold_service_minute
from requite.spark.gold.liveness import gold_worker_liveness
from requite.spark.gold.queueing import gold_queue_depth
from requite.spark.gold.rightsizing import gold_rightsizing

__all__ = [
    "gold_capacity",
    "gold_failures",
    "gold_latency_histogram",
    "gold_queue_depth",
    "gold_rightsizing",
    "gold_service_minute",
    "gold_worker_liveness",
]
