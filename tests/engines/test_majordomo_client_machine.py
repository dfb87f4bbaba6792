"""Random orders of events for client engines: every call ends once, and leaves no state.

The machine plays user, network and broker. A request's body is the token of its call, and a reply
repeats it, so that a reply delivered to the wrong call is detected (I2).
"""

from __future__ import annotations

from itertools import count
from math import inf

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.client import ClientBench, Sent

from requite.protocols.majordomo.wire import ClientHeartbeat
from requite.request import Status

NEVER_RAN = {
    (Status.NO_SERVICE, 0),
    (Status.SHUTTING_DOWN, 0),
    *((Status.OVERLOADED, n) for n in range(4)),
}
SERVICES = st.sampled_from(["echo", "other"])
TIMEOUTS = st.sampled_from([inf, 5.0, 1.0, 0.3])
MOSTLY = st.sampled_from([True, True, False])
CALLS_MAX = 6


class ClientMachine(RuleBasedStateMachine):
    """Random orders of events for a client; `version` is the dialect."""

    version = "0.3"

    def __init__(self) -> None:
        super().__init__()
        self.tokens = count()
        self.idempotent: dict[int, bool] = {}
        self.checked = 0  # number of entries of bench.requests that were checked
        self.settled: set[int] = set()  # indices of requests that certainly did not run
        self.answered: set[int] = set()  # indices of requests whose FINAL was sent
        self.shut_down: set[int] = set()  # indices refused with SHUTTING_DOWN

    @initialize(
        attempts=st.integers(1, 4),
        attempt_timeout=st.sampled_from([None, 0.7]),
        budget_burst=st.sampled_from([100, 1, 0]),
    )
    def start(self, attempts, attempt_timeout, budget_burst):
        self.bench = ClientBench(
            self.version,
            slots=CALLS_MAX - 1,
            connections_max=3,
            retry={
                "attempts": attempts,
                "attempt_timeout": attempt_timeout,
                "budget": 0.0,
                "budget_burst": budget_burst,
            },
        )
        self.budget_burst = budget_burst
        self.attempts = attempts

    # --- the user -----------------------------------------------------------------------------
    def outstanding(self) -> list[int]:
        ended = self.bench.replies.keys() | self.bench.errors.keys()
        return [token for token in self.idempotent if token not in ended]

    @precondition(lambda self: len(self.outstanding()) < CALLS_MAX)
    @rule(
        calls=st.lists(st.tuples(SERVICES, TIMEOUTS, MOSTLY, MOSTLY), min_size=1, max_size=3),
    )
    def submit(self, calls):
        for service, timeout, idempotent, partials in calls:
            token = next(self.tokens)
            self.idempotent[token] = idempotent
            self.bench.submit(
                token,
                b"%d" % token,
                service=service,
                timeout=timeout,
                idempotent=idempotent,
                partials=partials,
            )

    @precondition(lambda self: self.idempotent)
    @rule(data=st.data())
    def cancel(self, data):
        self.bench.cancel(data.draw(st.sampled_from(sorted(self.idempotent))))

    # --- the network --------------------------------------------------------------------------
    @precondition(lambda self: self.bench.dialling)
    @rule()
    def join(self):
        self.bench.join()

    @precondition(lambda self: self.bench.links)
    @rule(data=st.data())
    def lose(self, data):
        self.bench.lose(data.draw(st.sampled_from(self.bench.links)))

    @rule(
        seconds=st.sampled_from([0.01, 0.2, 1.0, 4.0]), frozen=st.sampled_from([False, False, True])
    )
    def advance(self, seconds, frozen):
        if frozen:
            self.bench.freeze(seconds)
        else:
            self.bench.advance(seconds)

    # --- the broker ---------------------------------------------------------------------------
    def answerable(self) -> list[int]:
        """Return the indices of all requests, answered or not, whose connection is open."""
        return [i for i, sent in enumerate(self.bench.requests) if sent.link in self.bench.links]

    @precondition(lambda self: self.answerable())
    @rule(data=st.data(), again=st.booleans())
    def answer(self, data, again):
        index = self.draw_answerable(data)
        sent = self.bench.requests[index]
        self.answered.add(index)
        final = self.bench.final(sent, b"re " + sent.command.body[0])
        self.bench.say(*([final] * (1 + again)), link=sent.link)

    def draw_answerable(self, data: st.DataObject) -> int:
        """Choose the index of a request to answer. With ids (MDP 0.3), any request may be answered.
        Without ids, a broker answers the oldest request of a connection, or the last one again."""
        indices = self.answerable()
        if self.version != "0.3":
            oldest: dict[str, int] = {}
            for i in indices:
                link = self.bench.requests[i].link
                if link not in oldest or oldest[link] in self.answered:
                    oldest[link] = i
            indices = sorted(oldest.values())
        return data.draw(st.sampled_from(indices))

    @precondition(lambda self: self.version == "0.3" and self.answerable())
    @rule(
        data=st.data(),
        status=st.sampled_from(list(Status)[1:]),
        attempts=st.integers(0, 3),
    )
    def refuse(self, data, status, attempts):
        index = self.draw_answerable(data)
        sent = self.bench.requests[index]
        if (status, attempts) in NEVER_RAN and self.is_pending(sent):
            self.settled.add(index)
        if status is Status.SHUTTING_DOWN and self.is_pending(sent):
            self.shut_down.add(index)
        self.bench.answer(sent, b"no", status, attempts)

    def is_pending(self, sent: Sent) -> bool:
        return self.bench.client._slots.get(sent.command.request_id) is not None

    @precondition(lambda self: self.version != "0.1" and self.answerable())
    @rule(data=st.data(), jump=st.sampled_from([0, 0, 0, 1]))
    def partial(self, data, jump):
        sent = self.bench.requests[self.draw_answerable(data)]
        self.bench.say(self.next_partial(sent, jump), link=sent.link)

    def next_partial(self, sent: Sent, jump: int = 0) -> list[bytes]:
        call = self.bench.client._slots.get(sent.command.request_id)
        index = (call.partials if call else 0) + jump
        return self.bench.partial(sent, sent.command.body[0], index)

    @precondition(lambda self: self.bench.links)
    @rule(data=st.data(), garbage=st.lists(st.binary(max_size=24), max_size=4))
    def send_heartbeat_or_garbage(self, data, garbage):
        link = data.draw(st.sampled_from(self.bench.links))
        is_valid = self.version == "0.3" and data.draw(MOSTLY)
        self.bench.say(
            self.bench.dialect.encode(ClientHeartbeat(1000)) if is_valid else garbage, link=link
        )

    # --- invariants -------------------------------------------------------------------------------
    @invariant()
    def replies_match_their_calls(self):
        for token, reply in self.bench.replies.items():
            assert reply.frames[-1] == b"re %d" % token
            assert set(reply.frames[:-1]) <= {b"%d" % token}
        for token, partials in self.bench.partials.items():
            assert all(partial.body == b"%d" % token for partial in partials)

    @invariant()
    def only_safe_requests_are_resent(self):
        requests = self.bench.requests
        for index in range(self.checked, len(requests)):
            token = int(requests[index].command.body[0])
            former = [i for i in range(index) if int(requests[i].command.body[0]) == token]
            assert len(set(former) - self.shut_down) < self.attempts
            assert self.idempotent[token] or self.settled.issuperset(former)
        self.checked = len(requests)

    @invariant()
    def retries_stay_inside_the_budget(self):
        assert sum(note.kind == "retried" for note in self.bench.notes) <= self.budget_burst

    @invariant()
    def errors_match_the_sent_requests(self):
        sent = {int(s.command.body[0]) for s in self.bench.requests}
        for token, error in self.bench.errors.items():
            assert token in sent or not error.may_have_executed
            assert (error.attempts > 0) == (token in sent)

    @invariant()
    def tables_match_the_outstanding_calls(self):
        snapshot = self.bench.client.snapshot()
        n = len(self.outstanding())
        assert snapshot.held + snapshot.sent + snapshot.resting == snapshot.slots_taken == n
        assert snapshot.connections == len(self.bench.links)
        assert snapshot.dialling == self.bench.dialling

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        self.heal()
        self.bench.drain()
        self.bench.assert_empty()
        assert self.bench.stopped
        assert self.bench.links == []
        assert self.bench.client.deadline() is None

    def heal(self) -> None:
        """Act as a working broker until all calls have ended (I10)."""
        bench = self.bench
        for _ in range(50):
            while bench.dialling:
                bench.join()
            for sent in list(bench.requests):
                if sent.link in bench.links and self.is_waiting(sent):
                    if self.version != "0.1":
                        bench.say(self.next_partial(sent), link=sent.link)
                    bench.answer(sent, b"re " + sent.command.body[0])
            if not self.outstanding():
                return
            bench.advance(0.5)
        raise AssertionError(f"{self.outstanding()} are still outstanding after 25 s")

    def is_waiting(self, sent: Sent) -> bool:
        if self.version == "0.3":
            return self.is_pending(sent)
        call = self.bench.client._lanes.calls[sent.link]
        return call is not None and call.frames == sent.command.body


class Mdp02Machine(ClientMachine):
    version = "0.2"


class Mdp01Machine(ClientMachine):
    version = "0.1"


TestClient03 = ClientMachine.TestCase
TestClient02 = Mdp02Machine.TestCase
TestClient01 = Mdp01Machine.TestCase
TestClient03.settings = TestClient02.settings = TestClient01.settings = settings(
    max_examples=2 * settings.default.max_examples
)
