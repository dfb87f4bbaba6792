"""The options of the sink, as strings from Spark, and the plan made from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql.types import DataType, StructType

from requite.client.call_arguments import TIMEOUT_S
from requite.errors import ConfigurationError
from requite.request import RetryPolicy
from requite.spark.bulk import plan as planning
from requite.spark.bulk.ids import job_id
from requite.spark.bulk.plan import BODY_TYPES, KEY_TYPES, WINDOW, Plan

_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname"})


@dataclass
class Options:
    """Options as strings from Spark, with case-insensitive names; records which ones are read.

    `whose` names their user in error messages.
    """

    given: Mapping[str, str]
    whose: str = "the sink"
    _known: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.given = {name.lower(): value for name, value in self.given.items()}

    def text(self, name: str) -> str | None:
        """Return an option; None if it is missing or empty."""
        self._known.append(name)
        return self.given.get(name.lower()) or None

    def needed(self, name: str) -> str:
        """Return a required option; raise `ConfigurationError` if it is missing."""
        if not (value := self.text(name)):
            raise ConfigurationError(f"{self.whose} requires the option {name}")
        return value

    def number(self, name: str, kind: Callable[[str], Any], default: Any) -> Any:
        """Return an option as a number of type `kind`."""
        value = self.text(name)
        try:
            return default if value is None else kind(value)
        except ValueError:
            raise ConfigurationError(f"the option {name} must be a number, not {value!r}") from None

    def count(self, name: str, default: Any) -> Any:
        """Return an option as an integer of at least 1."""
        value = self.number(name, int, default)
        if value is not None and value < 1:
            raise ConfigurationError(f"the option {name} must be at least 1, not {value}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """Return an option that is true or false."""
        return self.choice(name, ("true", "false"), str(default).lower()) == "true"

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        """Return an option that is one of `choices`."""
        value = (self.text(name) or default).lower()
        if value not in choices:
            raise ConfigurationError(
                f"the option {name} must be {' or '.join(choices)}, not {value!r}"
            )
        return value

    def end(self) -> None:
        """Raise `ConfigurationError` for unknown options."""
        known = {name.lower() for name in self._known} | _SPARKS_OWN
        if unknown := sorted(self.given.keys() - known):
            raise ConfigurationError(
                f"unknown option {', '.join(unknown)}; the options of {self.whose} are"
                f" {', '.join(self._known)}"
            )


def read_plan(options: Options, schema: StructType, returns: DataType | None = None) -> Plan:
    """Return the plan for tasks. `returns` is the type of the replies of a typed service.

    Raises `ConfigurationError`, and for a typed service the errors of `read_contract`.
    """
    window, rate = _window_and_rate(options)
    settings: dict[str, Any] = {}
    if attempts := options.count("retryAttempts", None):
        settings["retry"] = RetryPolicy(attempts=attempts)
    if size_max := options.count("messageSizeMax", None):
        settings["message_size_max"] = size_max
    prefix = options.text("prefix") or ""
    body = _column(options.needed("body"), "body", schema, BODY_TYPES if returns is None else ())
    assert body is not None
    body_type = schema.fields[body].dataType
    planning.check_clash(schema.names, prefix, typed=planning.is_typed(body_type, returns))
    key = _column(options.text("key"), "key", schema, KEY_TYPES)
    by_position = options.flag("keyByPosition", False)
    if key is not None and by_position:
        raise ConfigurationError("set either the option key or keyByPosition, not both")
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
            body=body,
            key=key,
            kept=len(schema.names),
            timeout_s=options.number("timeout", float, TIMEOUT_S),
            window=window,
            idempotent=options.flag("idempotent", True),
            give_up=options.flag("giveUp", True),
            retry_on=frozenset((options.text("retryOn") or "").replace(",", " ").split()),
            rate=rate,
            prefix=prefix,
        ),
        body_type,
        returns,
    )


def _window_and_rate(options: Options) -> tuple[int, float | None]:
    """Return a task's maximum number of requests in flight, and its rate per second."""
    window: int = options.count("window", WINDOW)
    cap, slots = options.count("inFlightMax", None), options.count("taskSlots", None)
    rate = options.number("rate", float, None)
    if slots is None and (cap is not None or rate is not None):
        name = "rate" if cap is None else "inFlightMax"
        raise ConfigurationError(f"{name} is divided among tasks: set taskSlots as well")
    return planning.share(cap, slots or 1, window), planning.share_of_rate(rate, slots or 1)


def _column(name: str | None, role: str, schema: StructType, types: tuple[str, ...]) -> int | None:
    if name is None:
        return None
    if name not in schema.names:
        raise ConfigurationError(
            f"no column {name!r} for the {role}; the columns are {', '.join(schema.names)}"
        )
    if types:
        planning.check_type(role, name, schema[name].dataType, types)
    return list(schema.names).index(name)
