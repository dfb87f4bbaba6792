"""Build engines with one part replaced."""

from __future__ import annotations

from typing import Any


def with_part(engine: Any, attribute: str, kind: type) -> Any:
    """Return a subclass of `engine` whose attribute `attribute` gets the class `kind`."""

    class Broken(engine):  # type: ignore[misc]
        def __init__(self, *args: Any, **given: Any) -> None:
            super().__init__(*args, **given)
            getattr(self, attribute).__class__ = kind

    Broken.__name__ = kind.__name__.strip("_")
    Broken.__module__ = kind.__module__
    return Broken
