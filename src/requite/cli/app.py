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
from requite.cli.output import complain, say
from requite.cli.verbs import VERBS, Verb, front_page, group_page
from requite.errors import RequiteError

_HELP: Final[tuple[list[str], ...]] = ([], ["--help"], ["-h"], ["help"])


def build() -> App:
    """Make the parser; the file of a verb is loaded when the verb is used."""
    return _app("requite", front_page(), VERBS)


def _app(name: str, page: str, verbs: Sequence[Verb]) -> App:
    app = App(
        name=name,
        help=page,
        version=__version__,
        help_format="plaintext",
        default_parameter=Parameter(negative=""),
        suppress_keyboard_interrupt=False,
    )
    for verb in verbs:
        if verb.verbs:
            app.command(_app(verb.name, group_page(verb), verb.verbs))
        else:
            app.command(verb.function, name=verb.name, usage=_usage(verb))
    return app


def _usage(verb: Verb) -> str:
    return " ".join(filter(None, ["Usage: requite", verb.words, verb.arguments, "[OPTIONS]"]))


def run(arguments: Sequence[str]) -> int:
    """Run the command; return its exit code. Failures are one paragraph on stderr, no traceback."""
    verb = _find(VERBS, arguments[0])
    if verb is None:
        return _unknown_verb(arguments[0], VERBS)
    return _choose(verb, list(arguments[1:]))


def _choose(verb: Verb, rest: list[str]) -> int:
    """Run a verb with what follows it, or the one that this chooses among its own."""
    if not verb.verbs:
        return _run(verb, [*verb.words.split(), *rest])
    if rest in _HELP:
        say(group_page(verb))
        return ExitCode.OK
    if verb.unnamed and rest[0].startswith("-"):
        rest.insert(0, verb.unnamed)
    inner = _find(verb.verbs, rest[0])
    if inner is None:
        return _unknown_verb(rest[0], verb.verbs, verb.words)
    return _choose(inner, rest[1:])


def _find(verbs: Sequence[Verb], word: str) -> Verb | None:
    return next((verb for verb in verbs if verb.name == word), None)


def _run(verb: Verb, arguments: Sequence[str]) -> int:
    try:
        result = build()(
            arguments, exit_on_error=False, print_error=False, result_action="return_value"
        )
        return ExitCode.OK if result is None else result
    except CycloptsError as error:
        complain(f"{error}\n  requite {verb.words} --help tells more")
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


def _unknown_verb(word: str, verbs: Sequence[Verb], words: str = "") -> ExitCode:
    names = [verb.name for verb in verbs]
    similar = difflib.get_close_matches(word, names, n=1)
    hint = f"did you mean `{similar[0]}`?" if similar else f"there are {', '.join(names)}"
    complain(f"no verb `{' '.join(filter(None, [words, word]))}`; {hint}")
    return ExitCode.USAGE


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
