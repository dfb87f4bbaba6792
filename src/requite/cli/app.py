"""Parse the arguments, run the verb, and turn its result or failure into an exit code."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from inspect import BoundArguments
from typing import Any, Final

from cyclopts import App, CycloptsError, Group, Parameter

from requite.cli.config import ConfigFile
from requite.cli.exit_codes import ExitCode, exit_code_of
from requite.cli.failures import sentence
from requite.cli.output import complain
from requite.cli.verbs import IMPLIED, VERBS, Verb, front_page, group_page
from requite.errors import ConfigurationError, RequiteError

_HELP: Final = ("--help", "-h")


def build(*, listed: bool = False, config: ConfigFile | None = None) -> App:
    """Make the parser; the file of a verb is loaded when the verb is used.

    `config` is asked for options that the command line does not have.

    Help pages list the verbs in the order of use, from their table: cyclopts would load each one
    for its summary. With `listed` cyclopts lists them as well, which shell completion needs.
    """
    app = _app("requite", front_page(), "", VERBS, Group("Verbs", show=listed))
    app.config = () if config is None else (config,)
    app.command(
        "requite.cli.completion:install_completion",
        name="--install-completion",
        usage="Usage: requite --install-completion [OPTIONS]",
    )
    return app


def _app(name: str, page: str, usage: str, verbs: Sequence[Verb], group: Group) -> App:
    app = App(
        name=name,
        help=page,
        usage=usage,
        help_flags=_HELP,
        version_flags=(),  # it would win over words that choose the version of a service
        help_format="plaintext",
        group_commands=group,
        default_parameter=Parameter(negative=""),
        suppress_keyboard_interrupt=False,
    )
    for verb in verbs:
        if verb.verbs:
            app.command(_app(verb.name, group_page(verb), verb.usage, verb.verbs, group))
        else:
            app.command(verb.function, name=verb.name, usage=verb.usage)
    return app


def run(arguments: Sequence[str]) -> int:
    """Run the command; return its exit code. Print a failure as one paragraph on stderr."""
    words, config = _with_implied_verb(list(arguments)), ConfigFile()
    try:
        verb, given = _parse(words, config)
        result = verb(*given.args, **given.kwargs)
        return ExitCode.OK if result is None else result
    except CycloptsError as error:
        page = " ".join(("requite", *(error.command_chain or ()), "--help"))
        complain(_own_message(error) or f"{error}\n  {page} shows more")
        return ExitCode.USAGE
    except RequiteError as error:
        config.name_in(error)
        complain(sentence(error))
        return exit_code_of(error)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        return _reader_left()
    except SystemExit:  # from rich: the reader of the help page closed stdout
        return ExitCode.OK
    except Exception as error:
        return _bug(error, words)


def _parse(words: Sequence[str], config: ConfigFile) -> tuple[Callable[..., Any], BoundArguments]:
    """Return the function of the verb, whose file is loaded now, and its arguments."""
    try:
        verb, given, _ = build(config=config).parse_args(
            words, exit_on_error=False, print_error=False
        )
        return verb, given
    finally:
        if not gc.isenabled():  # since the start of the process
            gc.freeze()
            gc.enable()


def _own_message(error: CycloptsError) -> str | None:
    """Return an error of ours about the value of an option; it says what to do."""
    if error.argument is None or not isinstance(error.__cause__, ConfigurationError):
        return None
    return f"{error.argument.name}: {error.__cause__}"


def _with_implied_verb(words: list[str]) -> list[str]:
    """Read `titanic --broker URL` as `titanic serve --broker URL`."""
    implied = IMPLIED.get(words[0]) if words else None
    if implied and words[1:] and words[1].startswith("-") and words[1] not in _HELP:
        return [words[0], implied, *words[1:]]
    return words


def _reader_left() -> ExitCode:
    """Point stdout at /dev/null after its reader closed it, so that the flush at exit succeeds."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitCode.OK


def _bug(error: Exception, arguments: Sequence[str]) -> ExitCode:
    complain(f"this is a bug in requite: {type(error).__name__}: {error}")
    if any(word == "--verbose" or word.startswith("-v") for word in arguments):
        traceback.print_exception(error)
    else:
        complain("run the command again with -v for the traceback")
    return ExitCode.INTERNAL
