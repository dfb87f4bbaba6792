"""The help of `requite` and of each command, and errors about wrong arguments."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.command import COMMAND, ENVIRONMENT, WAIT_S, requite

from requite import __build__, __version__
from requite.cli import main
from requite.cli.exit_codes import MEANING, ExitCode, table
from requite.cli.verbs import VERBS

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
NAMES = [verb.name for verb in VERBS]
GROUPS = [verb for verb in VERBS if verb.verbs]
DESCRIBED = {
    "broker": ("--bind", "--heartbeat-interval", "--drain-timeout", "SIGTERM"),
    "worker": ("MODULE:ATTR", "--connect", "--capacity", "--handler-timeout", "SIGTERM"),
    "device": ("--front", "--back", "--front-connect", "--back-bind", "--hops", "SIGTERM"),
    "queue": ("--protocol", "--front", "--back", "--heartbeat-interval", "SIGTERM"),
    "gateway": ("URL", "SERVICE", "--http", "--access", "--body-size-max", "SIGTERM"),
    "call": ("URL", "BODY", "--stream", "--timeout", "--json", "may_have_executed"),
    "result": ("URL", "TICKET", "--timeout", "--forget", "--json"),
    "services": ("URL", "--workers", "--watch", "--json"),
    "top": ("URL", "--interval", "--once", "--timeout", "--json"),
    "why": ("DIR... REQUEST-ID", "--failed", "--since", "--lines", "--json", "Exit code 1"),
    "bench": ("URL", "--concurrency", "--duration", "--requests", "--size", "p99_ms"),
    "demo": ("--worker-kills", "--broker-kills", "duplicated", "p99_ms"),
}


OPTION_GROUPS = {
    "worker": [
        "Arguments",
        "Addresses",
        "Handlers",
        "Liveness",
        "TLS",
        "Connection",
        "Journal",
        "Metrics",
        "Output",
        "Configuration",
    ],
    "call": [
        "Arguments",
        "Service",
        "Calls",
        "Durable requests",
        "Connection",
        "Journal",
        "Output",
    ],
}


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",)])
def test_the_front_page_names_every_verb_and_every_exit_code(words):
    ended = requite(*words)
    assert ended.code == 0
    assert not ended.err
    for verb in VERBS:
        assert re.search(rf"^  {verb.name} +{re.escape(verb.summary)}$", ended.out, re.MULTILINE)
    assert table() in ended.out


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("journal",)])
def test_it_exits_without_an_error_if_stdout_is_closed(words):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(
            [*COMMAND, *words],
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=subprocess.PIPE,
            timeout=WAIT_S,
            env=ENVIRONMENT,
            check=False,
        )
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, b"")


def run_program(program, *words):
    """Run a program of Python's with arguments; return the last line that it printed."""
    command = [sys.executable, "-c", program, *words]
    return subprocess.check_output(command, text=True, timeout=WAIT_S).splitlines()[-1]


def test_what_is_loaded_at_the_start_is_not_searched_for_garbage():
    """Such searches would take a fifth of the start's time."""
    program = (
        "import gc; from requite.cli import main; main();"
        "print(gc.isenabled(), gc.get_freeze_count() > 10_000)"
    )
    assert run_program(program, "broker", "--check") == "True True"


def test_a_call_loads_nothing_that_only_servers_or_help_pages_need():
    program = (
        "import sys, requite.cli.app, requite.cli.call;"
        "print(sys.modules.keys() & {'requite.storage.log', 'tomllib', 'rich'})"
    )
    assert run_program(program) == "set()"


def test_the_version_is_the_package_s():
    assert requite("--version").out == f"requite {__version__} ({__build__})\n"


@pytest.mark.parametrize("verb", ["describe", "stub", "call"])
def test_a_verb_has_no_version(verb, refusal):
    url = "mdp://127.0.0.1:1/orders.price"
    assert "Unknown option: --version" in refusal(verb, url, "orders", "--version", "2")
    ended = requite(verb, "--help")
    assert "orders.v2" in ended.out
    assert "version 2" in " ".join(ended.out.replace("│", "").split())


@pytest.mark.parametrize("verb", DESCRIBED)
def test_the_help_of_a_command_lists_its_arguments(verb):
    ended = requite(verb, "--help")
    assert ended.code == 0, ended.err
    assert ended.out.startswith(f"Usage: requite {verb} ")
    for word in DESCRIBED[verb]:
        assert word in ended.out
    assert "--verbose" in ended.out


@pytest.mark.parametrize(
    ("words", "expected", "page"),
    [
        (("brokr",), 'Did you mean "broker"?', "requite --help"),
        (("--xyzzy",), f"Available commands: {', '.join(NAMES[:8])}", "requite --help"),
        *(
            (
                (*group.words.split(), f"{group.verbs[0].name}x"),
                f'Did you mean "{group.verbs[0].name}"?',
                f"requite {group.words} --help",
            )
            for group in GROUPS
        ),
    ],
)
def test_an_unknown_command_gets_a_suggestion(words, expected, page, refusal):
    sentence, hint = refusal(*words).splitlines()
    assert f'Unknown command "{words[-1]}"' in sentence
    assert expected in sentence
    assert hint == f"  {page} shows more"


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.words)
@pytest.mark.parametrize("words", [(), ("--help",), ("-h",)])
def test_a_group_of_verbs_lists_them_without_loading_them(group, words):
    ended = requite(group.words, *words)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(f"Usage: requite {group.words} VERB")
    for verb in group.verbs:
        assert re.search(rf"^  {verb.name} +{re.escape(verb.summary)}$", ended.out, re.MULTILINE)


@pytest.mark.parametrize("verb", sorted(OPTION_GROUPS))
def test_the_help_of_a_verb_has_its_options_in_groups(verb, capsys):
    assert main([verb, "--help"]) == 0
    titles = re.findall(r"^╭─ (.+?) ─*╮$", capsys.readouterr().out, re.MULTILINE)
    assert titles == OPTION_GROUPS[verb]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("broker", "--livenes", "3"), "Did you mean --liveness?"),
        (("broker", "--liveness", "three"), "--liveness"),
        (("call",), "url"),
        (("worker", "requite.examples:echo"), "--connect"),
        (("worker", "requite.examples:echo"), "--bind"),
        (("device", "--front", "sp+tcp://127.0.0.1:0"), "--back"),
        (("bench", "mdp://127.0.0.1:1/echo", "--size", "-1"), "--size"),
        (("result", "mdp://127.0.0.1:1"), "ticket"),
        (("demo", "--workers", "1"), "--workers"),
    ],
)
def test_wrong_arguments_get_one_sentence_and_a_hint(words, expected):
    ended = requite(*words)
    assert (ended.code, ended.out) == (ExitCode.USAGE, "")
    sentence, hint = ended.err.splitlines()
    assert expected.lower() in sentence.lower()
    assert hint.strip() == f"requite {words[0]} --help shows more"


def test_every_exit_code_has_a_meaning():
    assert set(MEANING) == set(ExitCode)


def test_the_reference_has_the_same_exit_codes():
    page = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")
    rows = [f"| {int(code)} | {meaning} |" for code, meaning in MEANING.items()]
    assert "\n".join(["| code | meaning |", "|---|---|", *rows, ""]) in page


def test_the_reference_has_every_verb():
    page = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")
    for verb in VERBS:
        assert f"`{verb.name}`" in page
