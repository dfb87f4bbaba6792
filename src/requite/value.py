"""The base class of frozen dataclasses: compiled ones can be copied and pickled with it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, cast


class Value:
    """A frozen dataclass that is copied and pickled by its fields.

    A compiled dataclass restores a copy by setting its attributes, which a frozen one refuses.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[object, ...]:
        names = [each.name for each in fields(cast(Any, self)) if each.init]
        return _restored, (type(self), {name: getattr(self, name) for name in names})


def _restored(kind: type[Any], values: dict[str, Any]) -> Any:
    return kind(**values)
