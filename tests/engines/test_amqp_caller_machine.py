"""Random orders of calls, replies, losses, refusals and time: each call ends once, and no table
leaks."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from pamqp import commands
from tests.support.amqp_engines import SIDE, CallerSide, method

from requite.engine import Cancel, Drain, PeerLost
from requite.protocols.amqp import methods
from requite.protocols.amqp.caller import AmqpCaller
from requite.protocols.amqp.policy import CallerPolicy
from requite.protocols.amqp.properties import Properties, encode_properties
from requite.protocols.amqp.topology import Pool
from requite.request import RetryPolicy

_SLOTS = 4


class Calls(RuleBasedStateMachine):
    """A caller of a pool, with few slots, publisher confirms, and attempts that time out."""

    def __init__(self) -> None:
        super().__init__()
        policy = CallerPolicy(
            slots=_SLOTS, retry=RetryPolicy(attempts=2, attempt_timeout=2.0), confirms=True
        )
        destination = Pool("core").destination
        self.caller = AmqpCaller(policy, destination, origin=b"\1" * 8)
        self.rabbit = CallerSide(self.caller)
        self.is_up = False
        self.made = 0
        self.once: set[str] = set()  # message ids of requests that are not idempotent
        self.sends: Counter[str] = Counter()  # by message id
        self.asked: list[Properties] = []
        self.ended: Counter[Any] = Counter()

    def record(self) -> None:
        """Record the effects of the last input."""
        for _, _, properties, _ in self.rabbit.published():
            self.asked.append(properties)
            self.sends[properties.message_id] += 1
        for token, _ in [*self.rabbit.delivered(), *self.rabbit.failed()]:
            self.ended[token] += 1

    @rule(idempotent=st.booleans(), timeout_s=st.sampled_from([0.5, 3.0, 60.0]))
    def submit(self, idempotent: bool, timeout_s: float) -> None:
        token = f"{self.made}"
        self.made += 1
        self.rabbit.submit(token, "42", idempotent=idempotent, timeout_s=timeout_s)
        self.record()
        if not idempotent and token not in self.ended:
            self.once.add(self.caller.calls[token].message_id)

    @precondition(lambda self: not self.is_up)
    @rule()
    def connect(self) -> None:
        self.is_up = True
        self.rabbit.get_ready()
        self.record()
        self.rabbit.say(commands.Exchange.DeclareOk(), SIDE)
        self.record()

    @precondition(lambda self: self.is_up)
    @rule()
    def lose_connection(self) -> None:
        self.is_up = False
        self.rabbit.feed(PeerLost(self.rabbit.peer, "reset"))
        self.record()

    @precondition(lambda self: self.is_up)
    @rule(
        what=st.sampled_from(
            [
                (commands.Basic.ConsumeOk("replies"), methods.channel(1)),
                (commands.Exchange.DeclareOk(), SIDE),
                (commands.Basic.Cancel("replies"), methods.channel(1)),
                (commands.Basic.Ack(3, True), methods.channel(1)),
                (commands.Basic.Nack(1), methods.channel(1)),
                (commands.Channel.Close(404, "X", 60, 40), methods.channel(1)),
                (commands.Channel.Close(403, "X", 60, 40), methods.channel(1)),
                (commands.Channel.Close(404, "X", 40, 10), SIDE),
                (commands.Channel.Close(404, "X", 60, 40), SIDE),
            ]
        )
    )
    def say(self, what: tuple[Any, bytes]) -> None:
        self.rabbit.say(*what)
        self.record()

    @precondition(lambda self: self.is_up and self.asked)
    @rule(
        data=st.data(), status=st.sampled_from(["ok", "error", "?", None]), worker=st.integers(1, 2)
    )
    def reply(self, data: st.DataObject, status: str | None, worker: int) -> None:
        asked = data.draw(st.sampled_from(self.asked))
        partial = {} if status else {"x_partial": data.draw(st.integers(0, 2))}
        named = {"x_status": status} if status else {}
        self.rabbit.reply(asked, b"", **partial, **named, x_worker_id=f"{worker}")
        self.record()

    @precondition(lambda self: self.is_up and self.asked)
    @rule(data=st.data())
    def return_request(self, data: st.DataObject) -> None:
        asked = data.draw(st.sampled_from(self.asked))
        returned = method(commands.Basic.Return(312, "NO_ROUTE", "x", "42"))
        self.rabbit.hear([methods.channel(1), returned, encode_properties(asked, 0), b""])
        self.record()

    @precondition(lambda self: self.made)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        token = f"{data.draw(st.integers(0, self.made - 1))}"
        self.rabbit.feed(Cancel(token))
        self.record()
        assert self.ended[token] == 1

    @rule(after_s=st.sampled_from([0.1, 2.0, 30.0]))
    def wait(self, after_s: float) -> None:
        self.rabbit.wake(after_s)
        self.record()

    @invariant()
    def each_call_ends_at_most_once(self) -> None:
        assert not self.ended or max(self.ended.values()) == 1

    @invariant()
    def tables_match_the_open_calls(self) -> None:
        found = self.caller.snapshot()
        outstanding = found.held + found.sent
        assert outstanding == self.made - len(self.ended) == len(self.caller._table) <= _SLOTS

    @invariant()
    def attempts_are_bounded(self) -> None:
        assert all(count <= 2 for count in self.sends.values())
        assert all(self.sends[name] <= 1 for name in self.once)

    def teardown(self) -> None:
        self.rabbit.feed(Drain())
        self.record()
        assert len(self.ended) == self.made
        found = self.caller.snapshot()
        assert (found.held, found.sent, len(self.caller._table)) == (0, 0, 0)


Calls.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestCalls = Calls.TestCase
