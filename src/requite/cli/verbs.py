"""The verbs of the command, and the front page that lists them."""

from __future__ import annotations

from typing import Final, NamedTuple

from requite.cli import exit_codes


class Verb(NamedTuple):
    """A verb: its words after `requite`, what follows them, and what it is for.

    A verb with `verbs` of its own only chooses among them. Any other is the function of its last
    word's name, in the module of all its words: `journal tail` is `requite.cli.journal.tail:tail`.
    """

    words: str
    arguments: str
    summary: str
    verbs: tuple[Verb, ...] = ()

    @property
    def name(self) -> str:
        """The word that chooses it."""
        return self.words.rpartition(" ")[2]

    @property
    def function(self) -> str:
        """Where the function is, as MODULE:ATTR."""
        return f"requite.cli.{self.words.replace(' ', '.')}:{self.name}"

    @property
    def usage(self) -> str:
        """The first line of its help."""
        rest = ("VERB [ARGUMENTS]",) if self.verbs else (self.arguments, "[OPTIONS]")
        return " ".join(filter(None, ["Usage: requite", self.words, *rest]))


SERVE: Final = (
    Verb("broker", "", "Run a broker that clients and workers connect to"),
    Verb("worker", "MODULE:ATTR... --connect|--bind URL", "Serve functions of a Python module"),
    Verb("device", "--front URL --back URL", "Forward between clients and services, brokerless"),
    Verb("queue", "", "Hand requests to workers, for the Pirate patterns"),
    Verb(
        "titanic",
        "--broker URL --dir DIR",
        "Keep requests until they are answered; show what is kept",
        (
            Verb("titanic serve", "--broker URL --dir DIR", "Keep requests, behind any MDP broker"),
            Verb("titanic ls", "URL", "List what is kept"),
            Verb("titanic show", "URL TICKET", "Show one request, and its reply"),
            Verb("titanic retry", "URL TICKET", "Have one tried again that was put aside"),
            Verb("titanic forget", "URL TICKET", "Drop a request and its reply"),
            Verb("titanic stats", "URL", "Show how it goes"),
            Verb("titanic promote", "URL", "Let a replica take over"),
        ),
    ),
    Verb(
        "pool",
        "run --config FILE",
        "Manage keyed workers on RabbitMQ: start and stop them on demand",
        (
            Verb("pool run", "--config FILE", "Manage a pool, or stand by for its active manager"),
            Verb("pool demo", "", "Watch a pool survive: kill workers, manager and RabbitMQ"),
            Verb("pool status", "", "Show the status of a pool"),
            Verb("pool ls", "", "List the groups of a pool"),
            Verb("pool scale", "KEY N", "Set the number of workers of a group"),
            Verb("pool drain", "KEY...", "Drain groups or workers"),
            Verb(
                "pool poison",
                "ls|retry",
                "List and retry requests that killed their workers",
                (
                    Verb("pool poison ls", "", "List poisoned requests"),
                    Verb("pool poison retry", "ID...", "Retry poisoned requests"),
                ),
            ),
        ),
    ),
)
ASK: Final = (
    Verb("call", "URL [BODY]", "Make one call; its reply goes to stdout"),
    Verb("result", "URL TICKET", "Wait for the reply to a request that is kept"),
    Verb("services", "URL", "Show what a broker serves, and how it goes"),
    Verb(
        "pair",
        "status|switch URL",
        "Show which of two servers serves; let the other one do it",
        (
            Verb("pair status", "URL", "Show which one serves, and whether the other is there"),
            Verb("pair switch", "URL", "Let the one serve that is passive now"),
        ),
    ),
    Verb("bench", "URL", "Measure a deployment: throughput and latency"),
)
WATCH: Final = (
    Verb("demo", "", "Kill workers and the broker during 28,000 calls"),
    Verb("sim", "", "Run seeds of the deterministic simulator"),
)
JOURNAL: Final = Verb(
    "journal",
    "tail|stats|export|ship DIR",
    "Read what happened to each request",
    (
        Verb("journal tail", "DIR", "Show the newest events, and follow them with -f"),
        Verb("journal stats", "DIR", "Show what is in there, log by log"),
        Verb("journal export", "DIR --to FILE", "Write the events as Parquet or JSON lines"),
        Verb("journal ship", "DIR TARGET", "Copy it to a folder or a store, while it is written"),
    ),
)
SPARK: Final = Verb(
    "spark",
    "run|sql|watch|sweep",
    "Prove from journals that nothing was lost",
    (
        Verb("spark run", "--journal DIR --lake DIR", "Audit journals; refine them into tables"),
        Verb("spark sql", "QUERY --lake DIR", "Ask the tables that spark run has made"),
        Verb("spark watch", "--journal DIR", "Print an alert when a request is overdue"),
        Verb("spark sweep", "--seeds N", "Run seeds of the simulator in parallel"),
    ),
)
ACCOUNT: Final = (JOURNAL, SPARK)
VERBS: Final = (*SERVE, *ASK, *ACCOUNT, *WATCH)
# Which of its verbs a group means where an option follows it at once.
IMPLIED: Final = {"titanic": "serve"}

_FRONT_PAGE: Final = """\
requite: send a request, surely get its reply.

Usage: requite VERB [ARGUMENTS]        requite VERB --help tells more
{verbs}

Try it, each in a terminal of its own:

  $ requite broker
  $ requite worker requite.examples:echo --connect mdp://127.0.0.1:5555
  $ requite call mdp://127.0.0.1:5555/echo "hello, world"

Or without a broker:

  $ requite worker requite.examples:echo --bind sp+tcp://127.0.0.1:7000
  $ requite call sp+tcp://127.0.0.1:7000 "hello, world"

Tab completion for bash, zsh and fish:

  $ requite --install-completion

Exit codes:

{codes}
"""


def front_page() -> str:
    """Return what `requite` alone prints."""
    return _FRONT_PAGE.format(verbs=_list_verbs(), codes=exit_codes.table()).rstrip()


def group_page(group: Verb) -> str:
    """Return what a group prints of itself, below its usage."""
    hint = f"requite {group.words} VERB --help tells more"
    return "\n".join([f"{group.summary}.", "", "Verbs:", *_lines(group.verbs), "", hint])


def _list_verbs() -> str:
    sections = {
        "Serve": SERVE,
        "Ask": ASK,
        "Account for it": ACCOUNT,
        "Watch it survive": WATCH,
    }
    lines: list[str] = []
    for title, verbs in sections.items():
        lines += ["", f"{title}:", *_lines(verbs)]
    return "\n".join(lines)


def _lines(verbs: tuple[Verb, ...]) -> list[str]:
    return [f"  {verb.name:<9} {verb.summary}" for verb in verbs]
