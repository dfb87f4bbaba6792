"""Random orders of events for the client: every call ends once, with its own reply, and leaves no
state.

The machine plays user, network and workers. A request's body is the token of its call, and a reply
repeats it, so that a reply delivered to the wrong call is detected (I2).
"""

from __future__ import annotations

from collections import Counter
from itertools import count
from math import inf

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.sp_engines import ReqBench, tag

from requite.errors import Overloaded, TransportError
from requite.protocols.scalability.policy import ATTEMPTS_UNLIMITED
from requite.protocols.scalability.wire import IDS

TIMEOUTS = st.sampled_from([inf, 5.0, 1.0, 0.3])
MOSTLY = st.sampled_from([True, True, True, False])
SLOTS = 5
PEERS_MAX = 4


class ReqMachine(RuleBasedStateMachine):
    """Random orders of events for a client."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = count()
        self.names = count()
        self.idempotent: dict[int, bool] = {}
        self.answered: set[int] = set()  # tokens for which a reply was sent, even if late
        self.deadlines: dict[int, float] = {}
        self.attempts: Counter[int] = Counter()  # by token
        self.tags: dict[int, bytes] = {}
        self.ends: tuple[set[int], set[int]] = set(), set()  # tokens of checked ends
        self.checked = 0  # number of entries of bench.sent that were checked
        self.drained = False

    @initialize(
        resend_s=st.sampled_from([None, 0.7]),
        attempts_max=st.sampled_from([None, 1, 3]),
        budget_burst=st.sampled_from([100, 1, 0]),
        hold=st.booleans(),
        first_id=st.sampled_from([0, IDS - 2]),
        connected=st.booleans(),
    )
    def start(self, resend_s, attempts_max, budget_burst, hold, first_id, connected):
        self.attempts_max = attempts_max or inf
        self.resend_s = resend_s
        self.hold = hold
        self.first_id = first_id
        self.budget_burst = budget_burst
        self.bench = ReqBench(
            slots=SLOTS,
            first_id=first_id,
            attempt_timeout=resend_s,
            attempts=attempts_max or ATTEMPTS_UNLIMITED,
            hold=hold,
            budget=0.0,
            budget_burst=budget_burst,
        )
        if connected:
            self.join()

    # --- the user -----------------------------------------------------------------------------
    def outstanding(self) -> list[int]:
        ended = self.bench.replies.keys() | self.bench.errors.keys()
        return [token for token in self.idempotent if token not in ended]

    @rule(
        calls=st.lists(st.tuples(TIMEOUTS, MOSTLY, MOSTLY), min_size=1, max_size=3),
    )
    def submit(self, calls):
        for timeout, idempotent, plain in calls:
            token = next(self.tokens)
            self.idempotent[token] = idempotent
            self.deadlines[token] = self.bench.now + timeout
            body = b"%d" % token
            could = self.could_be_sent()
            if plain:
                self.bench.submit(token, body, timeout=timeout, idempotent=idempotent)
                hold = self.hold
            else:
                hold = not self.hold
                self.bench.ask(
                    token,
                    body,
                    timeout=timeout,
                    idempotent=idempotent,
                    resend_s=self.resend_s,
                    hold=hold,
                )
            refused = isinstance(self.bench.errors.get(token), Overloaded)
            room = len(self.outstanding()) - (not refused) < SLOTS
            assert self.drained or refused == (not room or not (hold or could))

    def could_be_sent(self) -> bool:
        return any(self.bench.peers.values()) and not self.bench.client.snapshot().held

    @precondition(lambda self: self.idempotent)
    @rule(data=st.data())
    def cancel(self, data):
        self.bench.cancel(data.draw(st.sampled_from(sorted(self.idempotent))))

    @rule(is_chosen=st.sampled_from([False] * 19 + [True]))
    def drain(self, is_chosen):
        if is_chosen:
            self.drained = True
            self.bench.drain()

    # --- the network --------------------------------------------------------------------------
    @precondition(lambda self: len(self.bench.peers) < PEERS_MAX)
    @rule()
    def join(self):
        peer = f"p{next(self.names)}"
        self.bench.join(peer)
        assert (peer in self.bench.peers) != self.drained

    @precondition(lambda self: self.bench.peers)
    @rule(data=st.data())
    def lose(self, data):
        self.bench.lose(self.draw_peer(data))

    @precondition(lambda self: self.bench.peers)
    @rule(data=st.data())
    def block_or_unblock(self, data):
        peer = self.draw_peer(data)
        if self.bench.peers[peer]:
            self.bench.block(peer)
        else:
            self.bench.unblock(peer)

    @rule(
        seconds=st.sampled_from([0.01, 0.2, 1.0, 4.0]),
        how=st.sampled_from(["woken in time", "woken", "late"]),
    )
    def advance(self, seconds, how):
        if how == "woken in time":
            self.bench.advance(seconds)
        elif how == "woken":
            self.bench.freeze(seconds)
        else:
            self.bench.now += seconds

    def draw_peer(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.bench.peers)))

    # --- workers ------------------------------------------------------------------------------
    @precondition(lambda self: self.bench.peers and self.bench.sent)
    @rule(data=st.data(), again=st.booleans())
    def answer(self, data, again):
        """Answer any request sent so far, over any open channel."""
        sent = data.draw(st.sampled_from(self.bench.sent))
        self.answered.add(int(sent.body))
        reply = sent.tag + b"re " + sent.body
        self.bench.say(self.draw_peer(data), *([reply] * (1 + again)))

    @precondition(lambda self: self.bench.peers)
    @rule(
        data=st.data(),
        junk=st.lists(
            st.one_of(
                st.binary(max_size=12),
                st.integers(0, IDS - 1).map(lambda n: n.to_bytes(4, "big") + b"re junk"),
            ),
            max_size=4,
        ),
    )
    def send_garbage(self, data, junk):
        tags = set(self.tags.values())
        junk = [payload for payload in junk if payload[:4] not in tags]
        before = self.bench.client.snapshot()
        self.bench.say(self.draw_peer(data), *junk)
        after = self.bench.client.snapshot()
        assert after.malformed + after.stray == before.malformed + before.stray + len(junk)

    # --- invariants -------------------------------------------------------------------------------
    @invariant()
    def attempts_and_ends_are_valid(self):
        self.each_attempt_is_allowed_and_identical()
        self.each_end_matches_the_attempts()

    def each_attempt_is_allowed_and_identical(self) -> None:
        sent_at = self.bench.sent_at[self.checked :]
        for sent, at in zip(self.bench.sent[self.checked :], sent_at, strict=True):
            token = int(sent.body)
            if token not in self.attempts:
                request_id = (self.first_id + len(self.attempts)) % IDS
                assert sent.tag == tag(request_id)
                self.tags[token] = sent.tag
            assert sent.tag == self.tags[token]
            self.attempts[token] += 1
            assert self.attempts[token] <= (self.attempts_max if self.idempotent[token] else 1)
            assert at < self.deadlines[token]
        self.checked = len(self.bench.sent)

    def each_end_matches_the_attempts(self) -> None:
        for token, reply in list(self.bench.replies.items())[len(self.ends[0]) :]:
            self.ends[0].add(token)
            assert reply.frames == (b"re %d" % token,)
            assert token in self.answered
            assert reply.attempts == self.attempts[token]
        for token, error in list(self.bench.errors.items())[len(self.ends[1]) :]:
            self.ends[1].add(token)
            assert error.attempts == self.attempts[token]
            assert error.may_have_executed == (self.attempts[token] > 0)
            if isinstance(error, TransportError):
                assert not self.idempotent[token] or self.attempts_max < inf

    @invariant()
    def no_call_waits_needlessly(self):
        snapshot = self.bench.client.snapshot()
        assert not (snapshot.held and any(self.bench.peers.values()))
        assert snapshot.held + snapshot.sent == len(self.outstanding()) <= SLOTS
        assert snapshot.channels == len(self.bench.peers) or self.drained

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        self.heal()
        self.bench.drain()
        self.bench.assert_empty()
        assert self.bench.stopped
        assert self.bench.client.deadline() is None

    def heal(self) -> None:
        """Act as a working worker until all calls have ended (I10)."""
        bench = self.bench
        for peer, is_open in list(bench.peers.items()):
            if not is_open:
                bench.unblock(peer)
        if not bench.peers:
            self.join()
        for peer in list(bench.peers)[1:]:
            bench.lose(peer)
        for _ in range(3):
            for sent in list(bench.sent):
                if int(sent.body) in self.outstanding():
                    bench.answer(sent, b"re " + sent.body)
                    self.answered.add(int(sent.body))
        assert not self.outstanding()
        self.attempts_and_ends_are_valid()


TestReq = ReqMachine.TestCase
