"""What Spark says when something fails becomes a sentence; what nobody expects stays as it is."""

from __future__ import annotations

import pytest

from requite.errors import (
    ConfigurationError,
    LakeBusy,
    LakeError,
    RequiteError,
    SparkBusy,
    SparkFailed,
)
from requite.spark.failures import TRIES_MAX, again_if_busy, as_sentences

RAISED_IN_A_PROCESS_OF_SPARKS = """[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred
Traceback (most recent call last):
  File "ingest.py", line 1, in _write
requite.errors.LakeBusy: another run has changed /lake/runs in the meantime: run again

\tat org.apache.spark.sql.execution.streaming...
"""


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        (RuntimeError(RAISED_IN_A_PROCESS_OF_SPARKS), LakeBusy, "^another run .*: run again$"),
        (
            RuntimeError("java.io.IOException: No space left on device"),
            LakeError,
            "free some space",
        ),
        (
            RuntimeError("FileNotFound: /x (Permission denied)"),
            LakeError,
            "cannot be read or written",
        ),
        (RuntimeError("java.lang.OutOfMemoryError: heap"), SparkFailed, "out of memory"),
        (RuntimeError("[CANNOT_OPEN_SOCKET] Can not"), SparkBusy, "too busy"),
        (RuntimeError("java.net.SocketTimeoutException: Accept timed out"), SparkBusy, "too busy"),
        (RuntimeError("Python worker failed to connect back."), SparkBusy, "too busy"),
        (
            RuntimeError(
                "[INVALID_CONF_VALUE.TYPE_MISMATCH] The value 'x' in the config \"spark.a\" is "
                "invalid. It should be a/an 'int' value. SQLSTATE: 22022\n\tat java"
            ),
            ConfigurationError,
            "^Spark rejects a setting: The value 'x' in .* 'int' value.$",
        ),
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


@pytest.mark.parametrize("failures", range(TRIES_MAX + 1))
def test_a_run_that_a_busy_machine_fails_is_tried_again_so_often(failures: int) -> None:
    tries: list[str] = []

    @again_if_busy
    def run(journal: str, *, lake: str) -> int:
        tries.append(journal + lake)
        with as_sentences():
            if len(tries) <= failures:
                raise RuntimeError("[CANNOT_OPEN_SOCKET] Can not open socket")
        return len(tries)

    if failures < TRIES_MAX:
        assert run("a", lake="b") == failures + 1
    else:
        with pytest.raises(SparkBusy, match="run again"):
            run("a", lake="b")
    assert tries == ["ab"] * min(failures + 1, TRIES_MAX)


def test_a_run_that_fails_otherwise_is_not_tried_again() -> None:
    tries: list[bool] = []

    @again_if_busy
    def run() -> None:
        tries.append(True)
        with as_sentences():
            raise RuntimeError("No space left on device")

    with pytest.raises(LakeError, match="free some space"):
        run()
    assert tries == [True]
