"""The options of `requite broker` become the settings of its policy and of its store."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import pytest

from requite.cli.broker_options import Limits, Liveness, Peers, Requests, Titanic, broker_policy
from requite.errors import ConfigurationError
from requite.protocols.majordomo.policy import BrokerPolicy, PartialsFor01

_GROUPS: Final[dict[type, tuple[str, ...]]] = {
    Liveness: ("heartbeat_interval", "liveness", "legacy_busy_timeout", "worker_expired_max"),
    Requests: ("attempts", "service_grace", "service_ttl", "drain_timeout"),
    Limits: (
        "queue_max",
        "client_pending_max",
        "client_pending_bytes_max",
        "pending_bytes_max",
        "services_max",
        "client_services_max",
        "worker_capacity_max",
    ),
    Peers: ("partials_for_0_1", "tell_old_clients"),
}


def policy(*changed: Any) -> BrokerPolicy:
    """Return the policy of a broker with the default options, but for `changed`."""
    groups = {type(group): group for group in (Liveness(), Requests(), Limits(), Peers(), *changed)}
    return broker_policy(groups[Liveness], groups[Requests], groups[Limits], groups[Peers])


def flat(settings: BrokerPolicy) -> dict[str, Any]:
    """Return the settings of a policy by name, with those of its heartbeat among them."""
    by_name = asdict(settings)
    return by_name | by_name.pop("heartbeat")


def other(value: Any) -> Any:
    """Return another valid value of an option."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, PartialsFor01):
        return next(each for each in PartialsFor01 if each is not value)
    return value + 1


def test_without_options_the_policy_is_the_default_one() -> None:
    assert policy() == BrokerPolicy()


@pytest.mark.parametrize(
    ("group", "option"), [(group, option) for group in _GROUPS for option in _GROUPS[group]]
)
def test_each_option_changes_one_setting(group: Any, option: str) -> None:
    value = other(getattr(group(), option))
    changed = flat(policy(replace(group(), **{option: value})))
    default = flat(BrokerPolicy())
    assert [changed[name] for name in default if changed[name] != default[name]] == [value]


def test_a_broker_has_no_store_unless_it_is_asked_for() -> None:
    assert Titanic().settings() is None
    assert Titanic(titanic_memory=True).settings() is not None


def test_options_of_a_store_require_one(tmp_path: Path) -> None:
    assert Titanic(tmp_path, titanic_attempts=3).settings() is not None
    with pytest.raises(ConfigurationError, match="require a store: give --titanic DIR"):
        Titanic(titanic_attempts=3).settings()
