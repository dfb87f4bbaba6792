"""The verbs of the command, and the front page that lists them."""

from __future__ import annotations

from typing import Final, NamedTuple

from requite.cli import exit_codes


class Verb(NamedTuple):
    """A verb: its words after `requite`, its arguments, and a summary.

    A verb with `verbs` is a group. Any other verb runs the function named by its last word, in the
    module named by all its words: `journal tail` is `requite.cli.journal.tail:tail`.
    """

    words: str
    arguments: str
    summary: str
    verbs: tuple[Verb, ...] = ()

    @property
    def name(self) -> str:
        """The last word of the verb."""
        return self.words.rpartition(" ")[2]

    @property
    def function(self) -> str:
        """The location of the function, as MODULE:ATTR."""
        return f"requite.cli.{self.words.replace(' ', '.')}:{self.name}"

    @property
    def usage(self) -> str:
        """The first line of the verb's help."""
        rest = ("VERB [ARGUMENTS]",) if self.verbs else (self.arguments, "[OPTIONS]")
        return " ".join(filter(None, ["Usage: requite", self.words, *rest]))


SERVE: Final = (
    Verb("broker", "", "Run a broker that clients and workers connect to"),
    Verb("worker", "MODULE:ATTR... --connect|--bind URL", "Serve functions of a Python module"),
    Verb("device", "--front URL --back URL", "Forward between clients and services, brokerless"),
    Verb("queue", "", "Hand requests to workers, for the Pirate patterns"),
    Verb("gateway", "URL [SERVICE...]", "Make typed services callable over HTTP"),
    Verb(
        "titanic",
        "--broker URL --dir DIR",
        "Store requests on disk until they are answered",
        (
            Verb(
                "titanic serve",
                "--broker URL --dir DIR",
                "Store requests durably, behind any MDP broker",
            ),
            Verb("titanic ls", "URL", "List stored requests"),
            Verb("titanic show", "URL TICKET", "Show one request, and its reply"),
            Verb("titanic retry", "URL TICKET", "Retry a request that was set aside"),
            Verb("titanic forget", "URL TICKET", "Drop a request and its reply"),
            Verb("titanic erase", "URL --owner NAME", "Erase all requests of one user"),
            Verb("titanic stats", "URL", "Show counts, the store and its replica"),
            Verb("titanic promote", "URL", "Promote a replica: it takes over"),
            Verb("titanic backup", "DIR TARGET", "Copy a store, also while it is in use"),
        ),
    ),
    Verb(
        "dedup",
        "erase DIR --owner NAME",
        "Maintain the replies that an idempotent service stores",
        (Verb("dedup erase", "DIR --owner NAME", "Erase the replies to one user's requests"),),
    ),
    Verb(
        "pool",
        "run --config FILE",
        "Manage keyed workers on RabbitMQ: start and stop them on demand",
        (
            Verb("pool run", "--config FILE", "Manage a pool, or stand by for its active manager"),
            Verb("pool demo", "", "Kill workers, manager and RabbitMQ during calls"),
            Verb("pool status", "", "Show the state of a pool"),
            Verb("pool ls", "", "List the groups of a pool"),
            Verb("pool scale", "KEY N", "Scale a group to N workers"),
            Verb("pool drain", "KEY...", "Finish the requests of groups, then stop the groups"),
            Verb(
                "pool poison",
                "ls|retry",
                "List or retry requests that killed their workers",
                (
                    Verb("pool poison ls", "", "List poisoned requests"),
                    Verb("pool poison retry", "ID...", "Retry poisoned requests"),
                ),
            ),
        ),
    ),
)
ASK: Final = (
    Verb("call", "URL [BODY]", "Make one call and print its reply"),
    Verb("result", "URL TICKET", "Wait for the reply to a stored request"),
    Verb("services", "URL", "Show the services, queues and workers of a broker"),
    Verb("top", "URL", "Show the services of a broker live, with rates and durations"),
    Verb("describe", "URL [SERVICE...]", "Show what typed services take and return"),
    Verb("stub", "URL SERVICE", "Write classes to call a typed service"),
    Verb(
        "pair",
        "status|switch URL",
        "Show which server of a pair is active; switch over",
        (
            Verb("pair status", "URL", "Show which server is active, and whether its peer is up"),
            Verb("pair switch", "URL", "Make the passive server active"),
        ),
    ),
    Verb(
        "admin",
        "kick|pause|resume|purge|drain URL",
        "Kick peers of a broker; pause, resume or purge a service; drain",
        (
            Verb("admin kick", "URL PEER", "End connections of workers or clients"),
            Verb("admin pause", "URL SERVICE", "Hold the requests of a service"),
            Verb("admin resume", "URL SERVICE", "Hand out the requests of a paused service"),
            Verb("admin purge", "URL SERVICE", "Cancel the queued requests of a service"),
            Verb("admin drain", "URL", "Have a broker finish its requests, and end"),
        ),
    ),
    Verb(
        "access",
        "check|whoami|hash|token",
        "Check users and their rights",
        (
            Verb("access check", "FILE [USER VERB NAME]", "Check an access file, and explain it"),
            Verb("access whoami", "URL", "Show as whom a broker knows this client"),
            Verb("access hash", "", "Hash a password for an access file"),
            Verb("access token", "", "Make a token for an access file"),
        ),
    ),
    Verb("bench", "URL", "Measure a deployment: throughput and latency"),
)
KEYS: Final = Verb(
    "keys",
    "new|show",
    "Make and show certificates and keys",
    (
        Verb(
            "keys new",
            "ca|listener|user|curve",
            "Make a certificate or a key",
            (
                Verb("keys new ca", "DIR", "Make an authority, which signs certificates"),
                Verb("keys new listener", "NAME... --ca DIR", "Make that of a broker or server"),
                Verb("keys new curve", "FILE", "Make a secret key for CURVE; print the public key"),
                Verb("keys new user", "NAME --ca DIR", "Make that of a client or worker"),
            ),
        ),
        Verb("keys show", "FILE", "Show the names and the expiry of certificates"),
    ),
)
WATCH: Final = (
    Verb("demo", "", "Kill workers and the broker during 28,000 calls"),
    Verb("sim", "", "Run seeds of the deterministic simulator"),
)
WHY: Final = Verb("why", "DIR... REQUEST-ID", "Tell what became of a request, by its journals")
JOURNAL: Final = Verb(
    "journal",
    "tail|stats|export|ship DIR",
    "Read what happened to each request",
    (
        Verb("journal tail", "DIR", "Show the newest events, and follow them with -f"),
        Verb("journal stats", "DIR", "Summarize each log of a journal"),
        Verb("journal export", "DIR --to FILE", "Write the events as Parquet or JSON lines"),
        Verb(
            "journal ship", "DIR TARGET", "Copy a journal to a folder or object store, continuously"
        ),
    ),
)
SPARK: Final = Verb(
    "spark",
    "run|sql|watch|sweep",
    "Prove from journals that nothing was lost",
    (
        Verb("spark run", "--journal DIR --lake DIR", "Audit journals; refine them into tables"),
        Verb("spark sql", "QUERY --lake DIR", "Query the tables that spark run wrote"),
        Verb("spark watch", "--journal DIR", "Print an alert when a request is overdue"),
        Verb("spark sweep", "--seeds N", "Run seeds of the simulator in parallel"),
    ),
)
ACCOUNT: Final = (WHY, JOURNAL, SPARK)
VERBS: Final = (*SERVE, *ASK, KEYS, *ACCOUNT, *WATCH)
# The default verb of a group, for a command line with an option directly after the group.
IMPLIED: Final = {"titanic": "serve"}

_FRONT_PAGE: Final = """\
requite: get a reply, or an error that says whether the request may have run.

Usage: requite VERB [ARGUMENTS]        requite VERB --help shows more
{verbs}

Try it, each command in its own terminal:

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
    """Return the text that `requite` without arguments prints."""
    return _FRONT_PAGE.format(verbs=_list_verbs(), codes=exit_codes.table()).rstrip()


def group_page(group: Verb) -> str:
    """Return the help of a group, without its usage line."""
    hint = f"requite {group.words} VERB --help shows more"
    return "\n".join([f"{group.summary}.", "", "Verbs:", *_lines(group.verbs), "", hint])


def _list_verbs() -> str:
    sections = {
        "Serve": SERVE,
        "Ask": ASK,
        "Secure it": (KEYS,),
        "Account for it": ACCOUNT,
        "Watch it survive": WATCH,
    }
    lines: list[str] = []
    for title, verbs in sections.items():
        lines += ["", f"{title}:", *_lines(verbs)]
    return "\n".join(lines)


def _lines(verbs: tuple[Verb, ...]) -> list[str]:
    return [f"  {verb.name:<9} {verb.summary}" for verb in verbs]
