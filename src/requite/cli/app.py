"""Parse the arguments, run the verb, and turn whatever comes of it into an exit code."""

from __future__ import annotations

import difflib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Final

from cyclopts import App, CycloptsError, Parameter

from requite import __version__
from requite.cli.exit_codes import ExitCode, exit_code_of
from requite.cli.failures import sentence
from requite.cli.output import complain
from requite.cli.verbs import VERBS, front_page
from requite.errors import RequiteError

_NAMES: Final = tuple(verb.name for verb in VERBS)


def build() -> App:
    """Make the parser; the file of a verb is loaded when the verb is used."""
    app = App(
        name="requite",
        help=front_page(),
        version=__version__,
        help_format="plaintext",
        default_parameter=Parameter(negative=""),
        suppress_keyboard_interrupt=False,
    )
    for verb in VERBS:
        usage = " ".join(filter(None, ["Usage: requite", verb.name, verb.arguments, "[OPTIONS]"]))
        app.command(verb.function, name=verb.name, usage=usage)
    return app


def run(arguments: Sequence[str]) -> int:
    """Run the command; return its exit code. Failures are one paragraph on stderr, no traceback."""
    if arguments[0] not in _NAMES:
        return _unknown_verb(arguments[0])
    try:
        result = build()(
            arguments, exit_on_error=False, print_error=False, result_action="return_value"
        )
        return ExitCode.OK if result is None else result
    except CycloptsError as error:
        _explain_usage(error, arguments)
        return ExitCode.USAGE
    except RequiteError as error:
        complain(sentence(error))
        return exit_code_of(error)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        return _reader_left()
    except Exception as error:
        return _bug(error, arguments)


def _unknown_verb(word: str) -> ExitCode:
    similar = difflib.get_close_matches(word, _NAMES, n=1)
    hint = f"did you mean `{similar[0]}`?" if similar else f"there are {', '.join(_NAMES)}"
    complain(f"no verb `{word}`; {hint}")
    return ExitCode.USAGE


def _explain_usage(error: CycloptsError, arguments: Sequence[str]) -> None:
    complain(f"{error}\n  requite {arguments[0]} --help tells more")


def _reader_left() -> ExitCode:
    """Whoever read our stdout has gone; Python must not trip over it once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitCode.OK


def _bug(error: Exception, arguments: Sequence[str]) -> ExitCode:
    complain(f"this is a bug in requite: {type(error).__name__}: {error}")
    if any(word == "--verbose" or word.startswith("-v") for word in arguments):
        traceback.print_exception(error)
    else:
        complain("the same command with -v shows where it happened")
    return ExitCode.INTERNAL
