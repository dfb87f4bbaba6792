"""The table of slots, compared with a plain dict."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from requite.core.slots import SLOTS_MAX, Slots
from requite.errors import ConfigurationError


class SlotsMachine(RuleBasedStateMachine):
    """Random operations on `Slots`, compared with a model: the calls in it, and all ids ever
    assigned."""

    @initialize(n=st.integers(1, 5), first=st.sampled_from([0, 7, 0xFFFF_FFFD, 0xFFFF_FFFF]))
    def start(self, n, first):
        self.n = n
        self.slots: Slots[int] = Slots(n, first)
        self.model: dict[int, int] = {}
        self.stale: set[int] = set()
        self.taken = 0

    @rule()
    def take(self):
        self.taken += 1
        request_id = self.slots.take(self.taken)
        if len(self.model) == self.n:
            assert request_id is None
            return
        assert request_id is not None
        self.admit(request_id, self.taken)

    def admit(self, request_id: int, held: int) -> None:
        assert request_id not in self.model.keys() | self.stale
        assert 0 <= request_id < 1 << 63
        self.model[request_id] = held

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def renumber(self, data):
        old = data.draw(st.sampled_from(sorted(self.model)))
        held = self.model.pop(old)
        self.stale.add(old)
        self.admit(self.slots.renumber(old), held)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def free(self, data):
        request_id = data.draw(st.sampled_from(sorted(self.model)))
        assert self.slots.free(request_id) == self.model.pop(request_id)
        self.stale.add(request_id)

    @rule(data=st.data())
    def look_up_an_unknown_id(self, data):
        strange = st.integers(0, (1 << 64) - 1).filter(lambda i: i not in self.model)
        stale = st.sampled_from(sorted(self.stale)) if self.stale else strange
        request_id = data.draw(strange | stale)
        assert self.slots.get(request_id) is None
        assert self.slots.free(request_id) is None

    @invariant()
    def matches_the_model(self):
        assert len(self.slots) == len(self.model)
        assert self.slots.capacity == self.n
        assert all(self.slots.get(i) == held for i, held in self.model.items())


TestSlots = SlotsMachine.TestCase


def test_ids_consist_of_slot_and_sequence_number():
    slots: Slots[str] = Slots(2, first_sequence=0xFFFF_FFFE)
    assert slots.take("a") == 0xFFFF_FFFF
    assert slots.take("b") == 1 << 32  # the sequence number has wrapped around
    assert slots.take("c") is None
    slots.free(1 << 32)
    assert slots.take("c") == 1 << 32 | 1


@pytest.mark.parametrize("n", [0, -1, SLOTS_MAX])
def test_a_table_of_invalid_size_is_refused(n):
    with pytest.raises(ConfigurationError):
        Slots(n)
