"""Frozen dataclasses of the compiled modules can be copied, pickled and replaced; compiled, too."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import os
import pickle
from typing import Any

import pytest
from tests.compiled.build import modules

from requite.framing.zmtp_curve import CurveClient, CurveServer, KeyPair
from requite.framing.zmtp_mechanism import PlainClient, PlainServer
from requite.principal import Quota, Rights
from requite.protocols.amqp.assignment import Assignment
from requite.protocols.amqp.topology import Pool
from requite.protocols.binarystar.policy import BinaryStarPolicy
from requite.protocols.binarystar.table import PairRole, State
from requite.protocols.binarystar.view import PairView
from requite.protocols.majordomo.management import ServiceState, Snapshot, WorkerState
from requite.request import Partial
from requite.value import Value


def admit_nobody(*_names: str) -> None:
    """Refuse a peer; checks are pickled by reference."""


OWN = KeyPair(bytes(32), bytes(range(32)))
SERVICE = ServiceState("echo", 1, 0, 3, 1, False, 9, 8, 1, 0, 0, 2, 0)
WORKER = WorkerState("echo", "w1", "id", "ann", "0.3", 4, 1, 8, False, 1000)

# The required fields of kinds that have any.
REQUIRED: dict[type[Any], tuple[object, ...]] = {
    Assignment: ("requests", "w1"),
    BinaryStarPolicy: (PairRole.PRIMARY,),
    CurveClient: (OWN.public, OWN, os.urandom),
    CurveServer: ((OWN,), admit_nobody, os.urandom),
    KeyPair: (OWN.secret, OWN.public),
    PairView: (PairRole.BACKUP, State.ACTIVE, 7, None, 0.5, True, False),
    Partial: ((b"a", b"b"), 3),
    PlainClient: ("ann", "secret"),
    PlainServer: (admit_nobody,),
    Pool: ("prices",),
    ServiceState: dataclasses.astuple(SERVICE),
    Snapshot: ((SERVICE,), (WORKER,), 1, 0, 0, 4, 2, False),
    WorkerState: dataclasses.astuple(WORKER),
}
KINDS = [
    kind
    for name in modules()
    for kind in vars(importlib.import_module(name.removesuffix(".py").replace("/", "."))).values()
    if isinstance(kind, type)
    if f"{kind.__module__.replace('.', '/')}.py" == name
    if dataclasses.is_dataclass(kind)
    if kind.__dataclass_params__.frozen
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_frozen_value_can_be_copied_pickled_and_replaced(kind: Any) -> None:
    value = kind(*REQUIRED.get(kind, ()))
    copies = [
        copy.copy(value),
        copy.deepcopy(value),
        dataclasses.replace(value),
        *(pickle.loads(pickle.dumps(value, each)) for each in range(pickle.HIGHEST_PROTOCOL + 1)),
    ]
    assert all(each == value and type(each) is kind and each is not value for each in copies)
    assert {repr(each) for each in copies} == {repr(value)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_frozen_value_cannot_be_changed(kind: Any) -> None:
    value = kind(*REQUIRED.get(kind, ()))
    for each in dataclasses.fields(value):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, each.name, getattr(value, each.name))
    with pytest.raises((AttributeError, TypeError)):
        value.other = 1
    assert not hasattr(value, "__dict__")


def test_frozen_values_are_found() -> None:
    assert {Quota, Rights, Partial, *REQUIRED} < set(KINDS)
    assert all(issubclass(kind, Value) for kind in KINDS)


def test_a_replaced_field_differs() -> None:
    rights = dataclasses.replace(Rights(call=("echo",)), serve=("*",))
    assert rights == Rights(call=("echo",), serve=("*",))
    assert copy.deepcopy(Quota(bytes=5)) == Quota(5)
