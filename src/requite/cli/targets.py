"""Import the service that `MODULE:ATTR` on the command line names."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from requite.errors import ConfigurationError, RequiteError
from requite.worker import Group, Service


def load_service(target: str) -> Service | Group:
    """Import the service of a target, from installed modules or the current directory.

    Raises `ConfigurationError`, which lists the services of the module.
    """
    module_name, colon, path = target.partition(":")
    if not (module_name and colon and path):
        _refuse(target, "write MODULE:ATTR, such as requite.examples:echo")
    found: Any = _import(target, module_name)
    for name in path.split("."):
        found = _attribute(target, found, name)
    if not _is_service(found):
        kind = type(found).__name__
        _refuse(target, f"it is a {kind}, not a service; decorate it with @requite.service('name')")
    served: Service | Group = found
    return served


def _import(target: str, name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except RequiteError:
        raise
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            _refuse(target, f"no module {error.name!r} in the current directory or installed")
        _refuse(target, f"its module {name!r} imports {error.name!r}, which is not installed")
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise ConfigurationError(
            f"cannot serve {target}: importing its module failed: {why}"
        ) from error


def _attribute(target: str, holder: Any, name: str) -> Any:
    try:
        return getattr(holder, name)
    except AttributeError:
        there = [known for known, value in vars(holder).items() if _is_service(value)]
        hint = f"its services are {', '.join(there)}" if there else "it has no services"
        where = getattr(holder, "__name__", type(holder).__name__)
        _refuse(target, f"{where} has no attribute {name!r}; {hint}")


def _is_service(value: Any) -> bool:
    return isinstance(value, Service | Group) and not isinstance(value, type)


def _refuse(target: str, why: str) -> NoReturn:
    raise ConfigurationError(f"cannot serve {target}: {why}")
