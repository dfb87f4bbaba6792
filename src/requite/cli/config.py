"""`--config FILE` and `--check`: a server's options in a TOML file, and a test of all options.

A key of the file is the name of an option, with underscores: `queue_max` is `--queue-max`. The
command line wins over the environment, the environment over the file, and the file over defaults.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, get_origin

from cyclopts import (
    App,
    Argument,
    ArgumentCollection,
    CycloptsError,
    Group,
    Parameter,
    Token,
    ValidationError,
)

from requite.cli.exit_codes import ExitCode
from requite.cli.output import say
from requite.errors import ConfigurationError, RequiteError
from requite.speaks.url import redact

_CONFIGURATION: Final = Group("Configuration", sort_key=95)
_OWN: Final = ("--config", "--check")
# The types of options: their values in TOML, the words for them, and how to write one.
_TYPES: Final[dict[type, tuple[tuple[type, ...], str]]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number, such as 10"),
    float: ((int, float), "a number, such as 2.5"),
    tuple: ((list,), 'a list of strings, such as ["A", "B"]'),
    str: ((str,), 'a string in quotes, such as "A"'),
}


@Parameter(name="*", group=_CONFIGURATION)
@dataclass(frozen=True, slots=True)
class Setup:
    """Where further options are, and whether the server is started at all."""

    config: Annotated[
        Path | None,
        Parameter(
            metavar="FILE",
            help="Read options from a TOML file: `queue_max = 500` is --queue-max 500. Options of "
            "the command line and the environment win over the file.",
        ),
    ] = None
    check: Annotated[
        bool,
        Parameter(
            show_default=False,
            help="Check all options and the files that they name, say what the server would do, "
            "and exit with 0; with 2 if they are not valid.",
        ),
    ] = False

    def report(self, *sentences: str | None, folders: Mapping[str, Path | None]) -> ExitCode:
        """Print what the server would do. `folders`: those that it writes to, by their option.
        Raises `ConfigurationError` for one that cannot be used."""
        for option, folder in folders.items():
            if folder is not None:
                _check_folder(option, folder)
        source = "the options are valid" if self.config is None else f"{self.config} is valid"
        say("; ".join((source, *filter(None, sentences))))
        return ExitCode.OK


DEFAULT_SETUP: Final = Setup()


class ConfigFile:
    """The file of --config, as a source of options for cyclopts.

    `path` is the file once it was read; None for a command without --config. `pool run` has a file
    of its own, which is not read here.
    """

    def __init__(self) -> None:
        self.path: Path | None = None

    def __call__(self, app: App, verb: tuple[str, ...], arguments: ArgumentCollection) -> None:
        """Give the options of the file to the arguments that neither the command line nor the
        environment has set. Raises `ConfigurationError`, with file and key."""
        chosen = [each for each in arguments if each.name == "--config" and each.tokens]
        if not chosen or not any(each.hint is Setup for each in arguments):
            return
        self.path = path = Path(chosen[0].tokens[-1].value)
        options = {key_of(each): each for each in arguments if stands_in_file(each)}
        for key, value in _read(path).items():
            if key not in options:
                raise ConfigurationError(f"{path}: {_unknown(key, value, list(options), verb)}")
            try:
                _give(options[key], key, value, str(path))
            except ValueError as error:
                raise ConfigurationError(f"{path}: {key}: {error}") from error

    def name_in(self, error: RequiteError) -> None:
        """Add a note with the file to an error about options, which may come from the file."""
        is_about_options = isinstance(error, ConfigurationError)
        if self.path is not None and is_about_options and str(self.path) not in str(error):
            error.add_note(f"{self.path} sets options of this command, too")


def stands_in_file(argument: Argument) -> bool:
    """Whether an argument of a command may stand in the file."""
    return not argument.children and argument.name not in _OWN


def key_of(argument: Argument) -> str:
    """Return the key of an argument in the file: the long name of an option, with underscores."""
    name = argument.name if argument.name.startswith("--") else argument.field_info.name
    return name.removeprefix("--").replace("-", "_").replace(".", "_")


def type_of(argument: Argument) -> str:
    """Return the words for the type of an argument in the file."""
    return _TYPES[_kind(argument)][1]


# --- the file -------------------------------------------------------------------------------------
def _read(path: Path) -> dict[str, Any]:
    import tomllib  # few commands have a file

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"--config: cannot read {path}: {error.strerror or error}"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not a text file in UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(
            f"{path} is not TOML: {error}; write lines such as `drain_timeout = 30`"
        ) from error


def _unknown(key: str, value: object, options: list[str], verb: tuple[str, ...]) -> str:
    near = get_close_matches(key.replace("-", "_"), options, n=1)
    hint = f"did you mean {near[0]}?" if near else f"`requite {' '.join(verb)} --help` lists them"
    if isinstance(value, dict) and not near:
        return f"unknown table [{key}]; write options above it, at the top of the file"
    return f"unknown option {key}; {hint}"


def _give(argument: Argument, key: str, value: Any, source: str) -> None:
    """Set an argument that has no value yet. Raises `ValueError` for a value that it cannot have,
    in either case."""
    if argument.resolved_hint is not Path and any(redact(text) != text for text in _texts(value)):
        raise ValueError(
            "the URL has a password; remove it, and name a file with user and password in "
            "credentials_file"
        )
    kind = _kind(argument)
    types, words = _TYPES[kind]
    is_of_type = type(value) in types
    if kind is tuple and is_of_type:
        is_of_type = bool(value) and all(isinstance(each, str) for each in value)
    if not is_of_type:
        raise ValueError(f"must be {words}, not {_shown(value)}")
    if argument.tokens:
        return
    if argument.parameter.count:
        tokens = [Token(keyword=key, source=source, implicit_value=value)]
    elif kind is tuple:
        tokens = [Token(keyword=key, value=v, source=source, index=i) for i, v in enumerate(value)]
    else:
        tokens = [Token(keyword=key, value=str(value), source=source)]
    for token in tokens:
        argument.append(token)
    try:
        argument.convert_and_validate()
    except CycloptsError as error:
        raise ValueError(f"{_shown(value)} is not valid: {_reason(error)}") from error


def _kind(argument: Argument) -> type:
    """Return the type of an argument, as a key of `_TYPES`."""
    hint = argument.resolved_hint
    kind = get_origin(hint) or hint
    return kind if kind in _TYPES else str  # a path, a choice


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        yield from (each for each in value if isinstance(each, str))


def _shown(value: object) -> str:
    """Return a value as the file has it, roughly."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"'
        case dict():
            return "a table"
        case list():
            return f"[{', '.join(map(_shown, value))}]"
        case _:
            return str(value)


def _reason(error: CycloptsError) -> str:
    if isinstance(error, ValidationError):
        return error.exception_message
    error.verbose = False
    return str(error)


# --- folders --------------------------------------------------------------------------------------
def _check_folder(option: str, folder: Path) -> None:
    """Raise `ConfigurationError` for a folder that is not there and cannot be created, or that
    cannot be written to."""
    nearest = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not nearest.is_dir():
        raise ConfigurationError(f"{option}: {nearest} is not a folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        verb = "write to" if nearest == folder else f"create {folder} in"
        raise ConfigurationError(f"{option}: this user cannot {verb} {nearest}")
