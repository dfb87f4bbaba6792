"""Random sequences of requests, replies, syncs, failures and crashes: the engine keeps I4."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.dedup.bench import Bench

from requite.dedup.inputs import Interrupted
from requite.dedup.records import encode_key
from requite.engine import CancelHandler, Finished, Produced, Wake
from requite.request import Status

KEYS = st.sampled_from([b"a", b"b", encode_key(b"", b"c", b"ann", is_call=False)])
WINDOW_S = 100.0


class HandlerRun:
    """A handler run in one process. `status` is None until it ends."""

    def __init__(self, word: bytes, life: int, at: float) -> None:
        self.word = word
        self.life = life
        self.at = at
        self.status: Status | None = None


class StoreMachine(RuleBasedStateMachine):
    """One service with three keys, of two principals. `waiting` maps unanswered tokens to keys."""

    @initialize(durable=st.booleans(), doubt=st.sampled_from(["refuse", "run"]))
    def begin(self, durable: bool, doubt: str) -> None:
        self.bench = Bench(4, durable=durable, in_doubt=doubt, window_s=WINDOW_S, bytes_max=2000)
        self.life = self.count = 0
        self.waiting: dict[str, bytes] = {}
        self.given_up: set[str] = set()
        self.started: dict[str, HandlerRun] = {}
        self.effects: dict[bytes, list[HandlerRun]] = {}
        self.known: dict[bytes, set[bytes]] = {}  # key -> replies that callers have received
        self.seen = 0

    # --- rules ---
    @rule(key=KEYS)
    def ask(self, key: bytes) -> None:
        self.count += 1
        token = f"{self.count}"
        self.waiting[token] = key
        self.check_answers(self.bench.ask(token, key))

    @precondition(lambda self: self.unstarted())
    @rule(data=st.data())
    def start(self, data: Any) -> None:
        self.begin_handler(data.draw(st.sampled_from(self.unstarted())))

    @rule(key=KEYS)
    def ask_and_start(self, key: bytes) -> None:
        """Run a sequence that is rarely drawn, and that reaches the important states."""
        self.ask(key)
        while self.bench.stores:
            self.store(fails=False)
        for token in self.unstarted():
            self.begin_handler(token)

    def begin_handler(self, token: str) -> None:
        key = self.key_of(token)
        effect = HandlerRun(b"%b:%s" % (key, token.encode()), self.life, self.wall)
        self.check_may_run(key)
        self.effects.setdefault(key, []).append(effect)
        self.started[token] = effect
        self.bench.start(token)

    @precondition(lambda self: self.running())
    @rule(data=st.data(), fails=st.booleans(), parts=st.integers(0, 2))
    def finish(self, data: Any, fails: bool, parts: int) -> None:
        token = data.draw(st.sampled_from(self.running()))
        effect = self.started[token]
        for _ in range(parts):
            self.check_answers(self.bench.feed(Produced(token, (effect.word,))))
        effect.status = Status.FAILED if fails else Status.OK
        self.check_answers(self.bench.finish(token, effect.word, effect.status))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def give_up(self, data: Any) -> None:
        token = data.draw(st.sampled_from(sorted(self.waiting)))
        if token in self.given_up:
            return
        self.given_up.add(token)
        out = self.bench.give_up(token)
        self.check_answers(out)
        for effect in out:
            if isinstance(effect, CancelHandler):
                assert effect.token not in self.started
                self.bench.ran.remove(effect.token)
                self.check_answers(self.bench.finish(effect.token, b"given up", Status.CANCELLED))

    @precondition(lambda self: self.bench.stores)
    @rule(fails=st.booleans())
    def store(self, fails: bool) -> None:
        before = len(self.bench.out)
        if fails:
            self.bench.fail()
        else:
            self.bench.sync_one()
        self.check_answers(self.bench.out[before:])

    @precondition(lambda self: self.bench.loads)
    @rule()
    def load(self) -> None:
        before = len(self.bench.out)
        self.bench.load()
        self.check_answers(self.bench.out[before:])

    @rule()
    def push(self) -> None:
        """Fill the log with replies to another principal."""
        for _ in range(8):
            self.count += 1
            token = f"{self.count}"
            before = len(self.bench.out)
            self.bench.ask(token, encode_key(b"", token.encode(), b"eve", is_call=False))
            self.bench.sync()
            self.bench.run(token, bytes(300))
            self.bench.sync()
            self.bench.ran.remove(token)
            self.check_answers(self.bench.out[before:])

    @rule(s=st.sampled_from([1.0, 60.0]))
    def pass_time(self, s: float) -> None:
        self.bench.now += s
        self.check_answers(self.bench.feed(Wake()))

    @rule()
    def close(self) -> None:
        """Stop cleanly, like a worker that closes. A store in memory survives."""
        self.check_answers(self.bench.feed(Interrupted(sorted({*self.waiting, *self.running()}))))
        self.bench.ran.clear()
        self.forget_process()

    @precondition(lambda self: self.bench.policy.durable)
    @rule()
    def die(self) -> None:
        """Crash: lose unsynced records."""
        self.bench = self.bench.reopened()
        self.forget_process()

    # --- invariants ---
    def check_answers(self, out: Any) -> None:
        """Check answers: each token gets one, and each reply is that of a run of its key."""
        for effect in out:
            if isinstance(effect, Finished) and effect.token in self.waiting:
                key = self.waiting.pop(effect.token)
                self.given_up.discard(effect.token)
                if effect.status is Status.OK:
                    [word] = effect.frames
                    assert word in {each.word for each in self.effects[key]}
                    self.known.setdefault(key, set()).add(word)

    def check_may_run(self, key: bytes) -> None:
        """Check I4: nothing runs again within its window, or while it runs."""
        policy, now = self.bench.policy, self.wall
        for former in self.effects.get(key, ()):
            assert former.status is not None or former.life != self.life, "two at a time"
            if former.status is Status.FAILED or now >= former.at + WINDOW_S:
                continue
            if policy.in_doubt == "run" and former.life != self.life:
                assert not policy.durable or former.word not in self.known.get(key, set())
                continue
            assert self.bench.engine.snapshot().evicted, f"{key!r} runs again"

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "bench"):
            return
        tokens = self.bench.engine._tokens
        assert self.bench.engine.snapshot().running == len(self.unstarted()) + len(self.running())
        assert {*self.waiting} <= {*tokens, *self.bench.engine._loads}

    # --- helpers ---
    @property
    def wall(self) -> float:
        return self.bench.now + self.bench.epoch_s

    def unstarted(self) -> list[str]:
        return [token for token in self.bench.ran if token not in self.started]

    def running(self) -> list[str]:
        return [token for token, effect in self.started.items() if effect.status is None]

    def key_of(self, token: str) -> bytes:
        return self.bench.engine._tokens[token].key

    def forget_process(self) -> None:
        self.life += 1
        self.waiting.clear()
        self.given_up.clear()
        self.started.clear()


TestStore = StoreMachine.TestCase
TestStore.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
