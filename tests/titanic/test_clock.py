"""Expiry of replies counts running time: no jump of the wall clock drops a reply early."""

from __future__ import annotations

import pytest
from tests.titanic.life import EPOCH_S, LocalTitanic

from requite.engine import Wake
from requite.errors import RemoteFailure
from requite.protocols.titanic.inputs import Answered
from requite.protocols.titanic.wire import CLOSE, REPLY
from requite.storage import MemoryFolder

DAY_S = 86_400.0
EXPIRE_S = 3600.0


@pytest.mark.parametrize("jump_s", [2 * DAY_S, -2 * DAY_S, 0.0])
def test_a_reply_outlives_a_jump_of_the_clock_and_then_expires(jump_s: float) -> None:
    folder = MemoryFolder()
    life = LocalTitanic(folder, expire_s=EXPIRE_S)
    ticket = life.submit(b"hi")
    assert life.ask(REPLY, ticket) == [b"200", b"re:hi"]
    life.wait(EXPIRE_S / 2)
    life.close()
    for start in (1, 2):  # the second start reads records from before and after the jump
        epoch_s = EPOCH_S + start * jump_s
        life = LocalTitanic(folder, expire_s=EXPIRE_S, epoch_s=epoch_s, seed=start)
        other = life.submit(b"ho")
        life.wait(EXPIRE_S - 1)
        assert life.ask(REPLY, ticket) == [b"200", b"re:hi"]
        assert life.ask(CLOSE, other) == [b"200"]
        if start == 1:
            life.close()
    life.wait(2.0)
    assert life.ask(REPLY, ticket)[0].startswith(b"400")
    assert life.engine.snapshot().requests == 0


def test_a_poisoned_request_outlives_a_jump_as_well() -> None:
    folder = MemoryFolder()
    life = LocalTitanic(folder, expire_s=EXPIRE_S, attempts_max=1)
    life.serves = False
    life.wait(0.0)
    ticket = life.submit(b"hi")
    life.feed([Answered(life.submits[0].token, RemoteFailure("no"))])
    assert life.ask(REPLY, ticket)[0].startswith(b"400 poisoned")
    life.close()
    life = LocalTitanic(folder, expire_s=EXPIRE_S, attempts_max=1, epoch_s=EPOCH_S + 2 * DAY_S)
    life.wait(EXPIRE_S - 1)
    assert life.ask(REPLY, ticket)[0].startswith(b"400 poisoned")
    life.wait(2.0)
    assert life.engine.snapshot().requests == 0


def test_many_replies_that_expire_together_leave_in_portions() -> None:
    folder = MemoryFolder()
    life = LocalTitanic(folder)
    for number in range(2500):
        life.submit(b"%d" % number)
    life.close()
    life = LocalTitanic(folder, expire_s=EXPIRE_S)
    life.wait(0.0)
    life.now += EXPIRE_S + 1
    counts = []
    while life.engine.snapshot().requests:
        life.feed([Wake()])
        counts.append(life.engine.snapshot().requests)
        life.now += 0.01
    assert counts == [1500, 500, 0]
