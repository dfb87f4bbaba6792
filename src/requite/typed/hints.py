"""The annotations of functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_type_hints

from requite.errors import ConfigurationError


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return a function's annotations as types. Raises `ConfigurationError` for names that they do
    not find."""
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        name = getattr(function, "__name__", repr(function))
        raise ConfigurationError(
            f"the annotations of {name} cannot be read: {error}; define types before their use, at"
            " the top of a module"
        ) from error
    except TypeError:  # a callable object without annotations
        return {}
