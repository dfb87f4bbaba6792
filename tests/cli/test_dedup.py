"""`requite dedup erase`, with the real command."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.command import requite

from requite.cli.exit_codes import ExitCode
from requite.dedup.records import DedupRecord, Kind, Outcome, encode, encode_key
from requite.request import Status
from requite.storage import Log

pytestmark = pytest.mark.e2e


def test_replies_of_one_user_are_erased(tmp_path: Path) -> None:
    outcome = Outcome(Status.OK, (), (b"a secret",))
    key = encode_key(b"pay", b"4711", b"ann", is_call=False)
    with Log.open(tmp_path, purpose=b"DEDU") as log:
        log.commit([encode(DedupRecord(Kind.ENDED, 1, key, outcome=outcome))])
        refused = requite("dedup", "erase", str(tmp_path), "--owner", "ann")
        assert (refused.code, "in use" in refused.err) == (ExitCode.USAGE, True)
    ended = requite("dedup", "erase", str(tmp_path), "--owner", "ann")
    assert (ended.code, ended.out) == (0, "erased 1 reply to 1 request of ann\n")
    assert not any(b"a secret" in file.read_bytes() for file in tmp_path.iterdir())
