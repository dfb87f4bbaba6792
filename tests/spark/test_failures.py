"""What Spark says when something fails becomes a sentence; what nobody expects stays as it is."""

from __future__ import annotations

import pytest

from requite.errors import LakeBusy, LakeError, RequiteError, SparkFailed
from requite.spark.failures import as_sentences

RAISED_IN_A_PROCESS_OF_SPARKS = """[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred
Traceback (most recent call last):
  File "ingest.py", line 1, in _write
requite.errors.LakeBusy: another run has changed /lake/runs meanwhile: run again

\tat org.apache.spark.sql.execution.streaming...
"""


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        (RuntimeError(RAISED_IN_A_PROCESS_OF_SPARKS), LakeBusy, "^another run .*: run again$"),
        (RuntimeError("java.io.IOException: No space left on device"), LakeError, "make room"),
        (RuntimeError("FileNotFound: /x (Permission denied)"), LakeError, "refuses to read"),
        (RuntimeError("java.lang.OutOfMemoryError: heap"), SparkFailed, "out of memory"),
        (RuntimeError("[CANNOT_OPEN_SOCKET] Can not"), SparkFailed, "too busy"),
        (ConnectionRefusedError(111, "Connection refused"), SparkFailed, "connection to Spark"),
    ],
)
def test_known_failures_are_sentences(
    error: Exception, kind: type[RequiteError], told: str
) -> None:
    with pytest.raises(kind, match=told) as caught, as_sentences():
        raise error
    assert caught.value.__cause__ is error
    assert "\n" not in str(caught.value)


def test_what_nobody_expects_stays_as_it_is() -> None:
    with pytest.raises(RuntimeError, match="a bug"), as_sentences():
        raise RuntimeError("a bug")
