"""`pool.toml`: its settings, what overrides them, what is refused, and the names in error
messages."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

import pytest

from requite.errors import ConfigurationError
from requite.pool.config import PoolConfig, read_config, read_section
from requite.pool.drivers.docker import DockerSettings
from requite.pool.drivers.manifests import KubernetesSettings
from requite.pool.drivers.subprocesses import SubprocessSettings
from requite.pool.drivers.systemd import SystemdSettings

MINIMAL = '[pool]\nname = "core"\n'


def test_only_the_name_is_required() -> None:
    config = read_config(MINIMAL)
    assert config.pool.name == "core"
    assert config.lifetime.unbind_delay_s == 300.0
    assert config.driver.kind == "subprocess"


def test_every_setting_of_the_file_is_read() -> None:
    config = read_config(
        MINIMAL
        + """
        [lifetime]
        unbind_delay = 20
        stop_delay = 1.5
        [limits]
        delivery_limit = 7
        [driver]
        kind = "docker"
        timeout = 5
        image = "core:3"
        """
    )
    assert (config.lifetime.unbind_delay_s, config.lifetime.stop_delay_s) == (20.0, 1.5)
    assert config.limits.delivery_limit == 7
    assert (config.driver.kind, config.driver.timeout_s) == ("docker", 5.0)
    assert config.driver.settings == {"image": "core:3"}


def test_the_environment_overrides_the_file_and_flags_override_both() -> None:
    text = MINIMAL + "[lifetime]\nunbind_delay = 1\nstop_delay = 1\nextra_lifetime = 1\n"
    environ = {
        "REQUITE_POOL__LIFETIME__STOP_DELAY": "2",
        "REQUITE_POOL__LIFETIME__EXTRA_LIFETIME": "2",
        "REQUITE_POOL__DRIVER__IMAGE": "core:3",
        "REQUITE_POOL__POOL__STOP_GROUPS_ON_EXIT": "false",
        "PATH": "/bin",
    }
    flags = {"lifetime.extra_lifetime": 3, "lifetime.unbind_delay": None}
    config = read_config(text, environ, flags)
    lifetime = config.lifetime
    assert (lifetime.unbind_delay_s, lifetime.stop_delay_s, lifetime.extra_lifetime_s) == (1, 2, 3)
    assert config.driver.settings == {"image": "core:3"}
    assert config.pool.stop_groups_on_exit is False


def test_the_environment_alone_is_sufficient() -> None:
    assert read_config("", {"REQUITE_POOL__POOL__NAME": "core"}) == read_config(MINIMAL)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "section \\[pool\\] with"),
        ("[pool]", "pool.toml, \\[pool\\]: name is missing"),
        ('[pool]\nname = ""', "pool.name is empty"),
        ("name = 1", "name is outside of a section"),
        ("[pool", "pool.toml: "),
        (MINIMAL + "colour = 1", "unknown setting 'colour'"),
        (MINIMAL + "[lifetimes]", "unknown section; the sections are pool, "),
        (MINIMAL + "[lifetime]\nunbind_delay = -1", "lifetime.unbind_delay is not positive"),
        (MINIMAL + "[lifetime]\nunbind_delay = 'soon'", "must be a number"),
        (MINIMAL + "[lifetime]\nunbind_delay = nan", "must be a number"),
        (MINIMAL + "[lifetime]\nunbind_delay = true", "must be a number"),
        (MINIMAL + "[limits]\ndelivery_limit = 1.5", "must be a whole number"),
        (MINIMAL + "[limits]\norphans = 70000", "between 1 and 65535"),
        (MINIMAL + "[loops]\nbackoff = 100", "loops.backoff exceeds"),
        (MINIMAL + "[pool.sub]\na = 1", "unknown setting 'sub'"),
        (MINIMAL + "[http]\nhost = 1", "must be a text"),
        (MINIMAL + "[http]\nhost = '0.0.0.0'", "set http.token_file"),
        (MINIMAL + "[http]\nhost = ''", "set http.token_file"),
        (MINIMAL + "[http]\nhost = '::'", "set http.token_file"),
        (MINIMAL + "[http]\nhost = 'pool.example'", "set http.token_file"),
        (MINIMAL + "[http]\nhost = '0.0.0.0'\ntoken_file = 't'", "set http.certificate"),
        (
            MINIMAL + "[http]\nhost = '0.0.0.0'\ncertificate = 'c'",
            "set http.token_file, or http.ca",
        ),
        (MINIMAL + "[http]\nhost = '0.0.0.0'\ninsecure = true", "set http.token_file"),
        (MINIMAL + "[http]\nkey = 'k'", "http.key requires http.certificate"),
        (MINIMAL + "[http]\nca = 'ca'", "http.ca requires http.certificate"),
        (MINIMAL + "[http]\nbind = 'unix:/s'\ncertificate = 'c'", "no effect at http.bind"),
        (MINIMAL + "[http]\nbind = 'tcp://127.0.0.1:1'", "unix:/PATH"),
        (MINIMAL + "[http]\nbind = 'unix:pool.sock'", "unix:/PATH"),
        (MINIMAL + "[http]\nhosts = ['pool.example:8670']", "without a port"),
    ],
)
def test_invalid_settings_are_refused_by_name(text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        read_config(text)


@pytest.mark.parametrize(
    "http",
    [
        "host = '127.0.0.2'",
        "host = '::1'",
        "host = 'localhost'",
        "host = '0.0.0.0'\ntoken_file = '/run/token'\ncertificate = 'c.pem'",
        "host = '0.0.0.0'\ntoken_file = '/run/token'\ninsecure = true",
        "host = '0.0.0.0'\ncertificate = 'c.pem'\nkey = 'k.pem'\nca = 'ca.pem'",
        "certificate = 'c.pem'",
        "host = '0.0.0.0'\nenabled = false",
        "host = '0.0.0.0'\nbind = 'unix:/run/pool.sock'",
        "hosts = ['pool.example', '192.0.2.1', '2001:db8::1']",
    ],
)
def test_endpoints_on_loopback_or_with_a_token_and_tls_are_accepted(http: str) -> None:
    assert read_config(f"{MINIMAL}[http]\n{http}").pool.name == "core"


@pytest.mark.parametrize(
    ("section", "setting", "key"),
    [
        ("lifetime", "colour = 1", "colour"),  # unknown
        ("pool", "version = 1", "version"),  # of another type
        ("pool", "stop_groups_on_exit = 1", "stop_groups_on_exit"),
        ("lifetime", "unbind_delay = 'soon'", "unbind_delay"),
        ("lifetime", "unbind_delay = true", "unbind_delay"),
        ("lifetime", "unbind_delay = [1]", "unbind_delay"),
        ("limits", "delivery_limit = 1.5", "delivery_limit"),
        ("limits", "delivery_limit = 7.0", "delivery_limit"),
        ("limits", "delivery_limit = true", "delivery_limit"),
        ("limits", "delivery_limit = '7.5'", "delivery_limit"),
        ("workers", "amqp_url = {}", "amqp_url"),
        ("lifetime", "unbind_delay = nan", "unbind_delay"),  # out of range
        ("lifetime", "unbind_delay = inf", "unbind_delay"),
        ("lifetime", "unbind_delay = 'inf'", "unbind_delay"),
        ("lifetime", "unbind_delay = 0", "unbind_delay"),
        ("lifetime", "stop_delay = 0", "stop_delay"),
        ("lifetime", "extra_lifetime = -1", "extra_lifetime"),
        ("pool", "instance = ''", "instance"),
        ("rabbitmq", "publish_timeout = 0", "publish_timeout"),
        ("rabbitmq", "management_timeout = 0", "management_timeout"),
        ("broker", "interval = 0", "interval"),
        ("broker", "timeout = 0", "timeout"),
        ("broker", "settle = -1", "settle"),
        ("loops", "interval = 0", "interval"),
        ("loops", "backoff = 0", "backoff"),
        ("loops", "backoff = 100", "backoff"),
        ("loops", "backoff_max = 0.1", "backoff_max"),
        ("loops", "replace_max = 0", "replace_max"),
        ("loops", "settle = -1", "settle"),
        ("limits", "message_ttl = 0.0001", "message_ttl"),
        ("limits", "delivery_limit = 0", "delivery_limit"),
        ("limits", "queue_length = -1", "queue_length"),
        ("limits", "orphans = 0", "orphans"),
        ("limits", "orphans = 65536", "orphans"),
        ("limits", "orphan_hold = 0", "orphan_hold"),
        ("http", "port = -1", "port"),
        ("http", "port = 65536", "port"),
        ("workers", "prefetch = 0", "prefetch"),
        ("workers", "prefetch = 65536", "prefetch"),
        ("driver", "timeout = 'long'", "timeout"),
    ],
)
def test_an_error_names_the_file_the_section_and_the_setting(
    section: str, setting: str, key: str
) -> None:
    pool = "" if section == "pool" else MINIMAL
    name = 'name = "core"' if section == "pool" else ""
    with pytest.raises(ConfigurationError) as caught:
        read_config(f"{pool}[{section}]\n{name}\n{setting}\n", where="etc/core.toml")
    sentence = str(caught.value)
    assert sentence.startswith(f"etc/core.toml, [{section}]: ")
    assert key in sentence.removeprefix(f"etc/core.toml, [{section}]: ")
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("section", "changed"),
    [
        ("limits", {"orphans": 0}),
        ("lifetime", {"unbind_delay_s": -1.0}),
        ("http", {"port": 65536}),
        ("pool", {"name": ""}),
        ("loops", {"backoff_s": 31.0}),
    ],
)
def test_settings_made_in_python_are_checked(section: str, changed: dict[str, Any]) -> None:
    config = read_config(MINIMAL)
    with pytest.raises(ConfigurationError, match=next(iter(changed)).removesuffix("_s")):
        replace(config, **{section: replace(getattr(config, section), **changed)})


@pytest.mark.parametrize(
    ("variable", "value", "complaint"),
    [
        ("REQUITE_POOL__LIFETIME__COLOUR", "1", "REQUITE_POOL__LIFETIME__COLOUR: unknown setting"),
        ("REQUITE_POOL__LIFETIMES__X", "1", "REQUITE_POOL__LIFETIMES__X: unknown section"),
        ("REQUITE_POOL__LIFETIME", "1", "REQUITE_POOL__SECTION__NAME"),
        ("REQUITE_POOL__LIMITS__ORPHANS", "some", "orphans is .some.; it must be a whole number"),
    ],
)
def test_invalid_environment_variables_are_refused(
    variable: str, value: str, complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        read_config(MINIMAL, {variable: value})


@dataclass(frozen=True, slots=True)
class Sample:
    """Settings of a driver."""

    command: tuple[str, ...]
    grace_s: float = 1.0
    verbose: bool = False


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"command": ["a", "b"]}, Sample(("a", "b"))),
        ({"command": "a b", "grace": "2.5", "verbose": "yes"}, Sample(("a", "b"), 2.5, True)),
        ({"command": [], "grace": 3}, Sample((), 3.0)),
    ],
)
def test_drivers_read_their_own_settings(table: dict[str, Any], expected: Sample) -> None:
    assert read_section(Sample, table, "[driver]") == expected


@pytest.mark.parametrize("table", [{}, {"command": [1]}, {"command": "a", "verbose": "maybe"}])
def test_invalid_settings_of_drivers_are_refused(table: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"\[driver\]"):
        read_section(Sample, table, "[driver]")


def test_equal_configurations_compare_equal() -> None:
    assert isinstance(read_config(MINIMAL), PoolConfig)
    assert read_config(MINIMAL) == read_config(MINIMAL)


def test_no_repr_shows_a_password() -> None:
    config = read_config(
        MINIMAL
        + """
        [rabbitmq]
        url = "amqp://me:hunter2@a/"
        management_url = "http://me:hunter2@a:15672"
        [broker]
        url = "mdp://me:hunter2@a"
        [workers]
        amqp_url = "amqp://me:hunter2@a/"
        broker_url = "mdp://me:hunter2@a"
        [driver]
        command = "worker"
        env = "PASSWORD=hunter2"
        """
    )
    assert "hunter2" not in repr(config)
    for kind in (SubprocessSettings, DockerSettings, KubernetesSettings, SystemdSettings):
        with pytest.raises(
            ConfigurationError, match=r"driver\.env: item 2 is not NAME=VALUE"
        ) as no:
            read_section(kind, {**_least(kind), "env": "A=1 hunter2"}, "[driver]")
        assert "hunter2" not in str(no.value)
        assert "hunter2" not in repr(
            read_section(kind, {**_least(kind), "env": "A=hunter2"}, "[driver]")
        )


def _least(kind: type[Any]) -> dict[str, Any]:
    """Return the settings of a driver that have no default."""
    return {
        each.name: "x"
        for each in fields(kind)
        if each.default is MISSING and each.default_factory is MISSING
    }
