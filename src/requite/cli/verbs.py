"""The verbs of the command, and the front page that lists them."""

from __future__ import annotations

from typing import Final, NamedTuple

from requite.cli import exit_codes


class Verb(NamedTuple):
    """A verb: its name, what follows it, and what it is for. It is the function of the same name in
    the module of the same name."""

    name: str
    arguments: str
    summary: str

    @property
    def function(self) -> str:
        """Where the function is, as MODULE:ATTR."""
        return f"requite.cli.{self.name}:{self.name}"


SERVE: Final = (
    Verb("broker", "", "Run a broker that clients and workers connect to"),
    Verb("worker", "MODULE:ATTR... --connect URL", "Serve functions of a Python module"),
)
ASK: Final = (
    Verb("call", "URL [BODY]", "Make one call; its reply goes to stdout"),
    Verb("services", "URL", "Show what a broker serves, and how it goes"),
    Verb("bench", "URL", "Measure a deployment: throughput and latency"),
)
WATCH: Final = (
    Verb("demo", "", "Kill workers and the broker during 28,000 calls"),
    Verb("sim", "", "Run seeds of the deterministic simulator"),
)
VERBS: Final = (*SERVE, *ASK, *WATCH)

_FRONT_PAGE: Final = """\
requite: send a request, surely get its reply.

Usage: requite VERB [ARGUMENTS]        requite VERB --help tells more
{verbs}

Try it, each in a terminal of its own:

  $ requite broker
  $ requite worker requite.examples:echo --connect mdp://127.0.0.1:5555
  $ requite call mdp://127.0.0.1:5555/echo "hello, world"

Exit codes:

{codes}
"""


def front_page() -> str:
    """Return what `requite` alone prints."""
    return _FRONT_PAGE.format(verbs=_list_verbs(), codes=exit_codes.table()).rstrip()


def _list_verbs() -> str:
    sections = {"Serve": SERVE, "Ask": ASK, "Watch it survive": WATCH}
    lines: list[str] = []
    for title, verbs in sections.items():
        lines += ["", f"{title}:"]
        lines += [f"  {verb.name:<9} {verb.summary}" for verb in verbs]
    return "\n".join(lines)
