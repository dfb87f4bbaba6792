"""`requite why`: what became of a request, and which requests failed."""

from __future__ import annotations

import re
from typing import Annotated, Final

from cyclopts import Parameter, validators

from requite.cli.exit_codes import ExitCode
from requite.cli.options import QUIET, JsonFlag, Logging
from requite.cli.output import complain, say_json
from requite.cli.why_printing import say_failures, say_story, say_unknown
from requite.errors import ConfigurationError
from requite.journal.search import Findings, search
from requite.story.failures import failures
from requite.story.telling import record_of, tell

_ID: Final = re.compile(r"[0-9a-f]{32}")
_EXAMPLE: Final = "37318fdeaa15e1b00000000000000007"
_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_SINCE_MAX_DAYS: Final = 36_500
_SINCE_MAX_S: Final = _SINCE_MAX_DAYS * 86_400.0
_SECONDS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_SHOWN: Final = 20
_ADDRESSES: Final = ("amqp", "amqps", "flp", "mdp", "pirate", "sp")


def why(
    *words: Annotated[
        str,
        Parameter(
            name="DIR... REQUEST-ID",
            help="Journals or single logs: folders, or stores such as `s3://BUCKET/journals`; then "
            "the ID of a request, unless with --failed.",
        ),
    ],
    failed: Annotated[
        bool, Parameter(show_default=False, help="List the newest requests that failed.")
    ] = False,
    since: Annotated[
        str,
        Parameter(
            metavar="TIME",
            help="With --failed: up to this long (s, m, h, d) before the newest event.",
        ),
    ] = "10m",
    lines: Annotated[
        int,
        Parameter(
            name=("--lines", "-n"),
            metavar="N",
            validator=validators.Number(gte=1, lte=1000),
            help="With --failed: how many requests.",
        ),
    ] = _SHOWN,
    as_json: JsonFlag = False,
    logging: Logging = QUIET,
) -> int:
    """Tell what became of a request, by the journals of client, broker and workers.

    Who had it when, what was lost, retried, refused or denied, what its caller was
    told, and the verdict of the audit. Times are in UTC. The ID has 32 hexadecimal
    digits: `request_id` of a `CallError`, of `requite call --json`, and in the
    lines of `requite journal tail`. The journals may be in use. Name all that have
    a part of the request, also those of other machines.

    The first search of a journal makes a small index beside each full file, in a
    folder `.index`; later ones read only the files that have the request.

    With --failed: the newest requests whose callers got an error or whose broker
    refused them, newest first.

    Exit code 1: no event of the request is in the journals.

      $ requite why journal 37318fdeaa15e1b00000000000000007
      $ requite why journal --failed --since 1h
    """
    logging.start()
    if failed:
        return _list_failed(words, _seconds(since), lines, as_json=as_json)
    places, request_id = _places(words[:-1], words[-1:]), _request_id(words[-1])
    findings = search(places, [bytes.fromhex(request_id)])
    _complain_of_index(findings)
    story = tell(findings, request_id)
    if as_json:
        say_json(record_of(story, request_id, findings))
    elif story is None:
        say_unknown(request_id, findings)
    else:
        say_story(story, findings)
    return ExitCode.OK if story is not None else ExitCode.FAILED


def _list_failed(words: tuple[str, ...], within_s: float, count: int, *, as_json: bool) -> int:
    found = failures(_places(words, ()), within_s, count)
    _complain_of_index(found.findings)
    if as_json:
        say_json(found.record())
    else:
        say_failures(found)
    return ExitCode.OK


def _places(places: tuple[str, ...], request: tuple[str, ...]) -> tuple[str, ...]:
    """Return the journals. Raises `ConfigurationError` if there is none, or for a broker's URL."""
    if not places and request and _ID.fullmatch(request[0].lower()):
        raise ConfigurationError(
            f"name the journal of the request before its ID: requite why DIR {request[0]}"
        )
    if not places:
        raise ConfigurationError(
            f"name a journal and the ID of a request, such as `requite why journal {_EXAMPLE}`; "
            "`requite why journal --failed` lists failed requests"
        )
    for place in places:
        if place.partition("://")[0].partition("+")[0] in _ADDRESSES and "://" in place:
            raise ConfigurationError(
                f"{place} is an address to call; name the folder of the broker's journal, which "
                "it was started with (--journal)"
            )
    return places


def _request_id(text: str) -> str:
    if _ID.fullmatch(text.lower()):
        return text.lower()
    raise ConfigurationError(
        f"`{text}` is not the ID of a request, which has 32 hexadecimal digits, such as "
        f"{_EXAMPLE}; `request_id` of an error has it, and `requite why DIR --failed` lists failed "
        "requests"
    )


def _seconds(text: str) -> float:
    match = _SPAN.fullmatch(text.lower())
    if match is None:
        raise ConfigurationError(f"--since: `{text}` is not a time such as 90s, 10m, 2h or 1d")
    seconds = float(match[1]) * _SECONDS[match[2]]
    if seconds > _SINCE_MAX_S:
        raise ConfigurationError(f"--since: {text} is more than {_SINCE_MAX_DAYS} days")
    return seconds


def _complain_of_index(findings: Findings) -> None:
    if findings.unkept:
        complain(
            f"the index of the journal cannot be kept ({findings.unkept}), so each search reads "
            "all files"
        )
