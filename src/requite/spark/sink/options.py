"""The options of the sink: texts, as Spark gives them, and the plan that they stand for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql.types import StructType

from requite.client.asking import TIMEOUT_S
from requite.errors import ConfigurationError
from requite.request import RetryPolicy
from requite.spark.bulk import plan as planning
from requite.spark.bulk.ids import job_id
from requite.spark.bulk.plan import BODY_TYPES, KEY_TYPES, WINDOW, Plan

_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname"})


@dataclass
class Options:
    """Options as Spark gives them: texts whose names have no case. Each is taken once."""

    given: Mapping[str, str]
    _known: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.given = {name.lower(): value for name, value in self.given.items()}

    def text(self, name: str) -> str | None:
        """Return an option, None if it is not there or empty."""
        self._known.append(name)
        return self.given.get(name.lower()) or None

    def needed(self, name: str) -> str:
        """Return an option that has to be there."""
        if not (value := self.text(name)):
            raise ConfigurationError(f"the sink needs the option {name}")
        return value

    def number(self, name: str, kind: Callable[[str], Any], default: Any) -> Any:
        """Return an option as a number of a kind."""
        value = self.text(name)
        try:
            return default if value is None else kind(value)
        except ValueError:
            raise ConfigurationError(f"the option {name} is a number, not {value!r}") from None

    def count(self, name: str, default: Any) -> Any:
        """Return an option as a whole number of at least 1."""
        value = self.number(name, int, default)
        if value is not None and value < 1:
            raise ConfigurationError(f"the option {name} is at least 1, not {value}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """Return an option that is true or false."""
        return self.choice(name, ("true", "false"), str(default).lower()) == "true"

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        """Return an option that is one of some words."""
        value = (self.text(name) or default).lower()
        if value not in choices:
            raise ConfigurationError(f"the option {name} is {' or '.join(choices)}, not {value!r}")
        return value

    def end(self) -> None:
        """Refuse options that nobody has asked for."""
        known = {name.lower() for name in self._known} | _SPARKS_OWN
        if unknown := sorted(self.given.keys() - known):
            raise ConfigurationError(
                f"the sink has no option {', '.join(unknown)}; it has {', '.join(self._known)}"
            )


def read_plan(options: Options, schema: StructType) -> Plan:
    """Return what tasks have to do. Raises `ConfigurationError`."""
    window, rate = _window_and_rate(options)
    settings: dict[str, Any] = {}
    if attempts := options.count("retryAttempts", None):
        settings["retry"] = RetryPolicy(attempts=attempts)
    if size_max := options.count("messageSizeMax", None):
        settings["message_size_max"] = size_max
    prefix = options.text("prefix") or ""
    planning.check_clash(schema.names, prefix)
    key = _column(options.text("key"), "key", schema, KEY_TYPES)
    by_position = options.flag("keyByPosition", False)
    if key is not None and by_position:
        raise ConfigurationError("the options key and keyByPosition exclude each other")
    if key is None and not by_position:
        raise ConfigurationError(
            "name the column that identifies a row (option key), or set keyByPosition=true"
        )
    return planning.make_plan(
        Plan(
            planning.connection(
                options.needed("url"), options.text("service"), 2 * window, settings
            ),
            job_id(options.text("job")),
            body=_column(options.needed("body"), "body", schema, BODY_TYPES) or 0,
            key=key,
            kept=len(schema.names),
            timeout_s=options.number("timeout", float, TIMEOUT_S),
            window=window,
            idempotent=options.flag("idempotent", True),
            give_up=options.flag("giveUp", True),
            retry_on=frozenset((options.text("retryOn") or "").replace(",", " ").split()),
            rate=rate,
            prefix=prefix,
        )
    )


def _window_and_rate(options: Options) -> tuple[int, float | None]:
    """Return how many requests a task may have out, and how many it may send per second."""
    window: int = options.count("window", WINDOW)
    cap, slots = options.count("inFlightMax", None), options.count("taskSlots", None)
    rate = options.number("rate", float, None)
    if slots is None and (cap is not None or rate is not None):
        name = "rate" if cap is None else "inFlightMax"
        raise ConfigurationError(f"{name} is divided among tasks: it needs taskSlots, too")
    return planning.share(cap, slots or 1, window), planning.share_of_rate(rate, slots or 1)


def _column(name: str | None, role: str, schema: StructType, types: tuple[str, ...]) -> int | None:
    if name is None:
        return None
    if name not in schema.names:
        raise ConfigurationError(
            f"there is no column {name!r} for the {role}; there are {', '.join(schema.names)}"
        )
    planning.check_type(role, name, schema[name].dataType.simpleString(), types)
    return list(schema.names).index(name)
