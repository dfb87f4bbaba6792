"""Documentation pages name only options, files, modules and attributes that exist.

Also: prose has at most 120 columns, and the page on installing lists all extras.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from requite.cli.app import build
from requite.cli.verbs import VERBS, Verb

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*/*.md"))
    if path.name not in ("CHANGELOG.md", "changelog.md") and "_build" not in path.parts
)
# Options of `requite` itself, and of other commands in the pages (`towncrier build --yes`, curl).
OTHERS: Final = frozenset(
    {"--help", "--version", "--install-completion", "--yes", "--cacert", "--cert"}
)
_CODE: Final = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
_OPTION: Final = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]\b")
_PATH: Final = re.compile(r"[\w.-]+(?:/[\w.-]+)*/?")
_SUFFIXES: Final = (".py", ".md", ".toml", ".in", ".txt", ".svg", ".ipynb", ".cfg")
_FOLDERS: Final = ("src/", "tests/", "docs/", "bench/", "scripts/", "requirements/", "changes/")
_MODULE: Final = re.compile(r"(?<![\w./-])requite(?:\.[A-Za-z_]\w*)+")


def code_of(page: str) -> Iterator[str]:
    """Yield the inline code and the code blocks of a page."""
    return (found.group() for found in _CODE.finditer((ROOT / page).read_text()))


# --- options --------------------------------------------------------------------------------------
def leaves(verbs: tuple[Verb, ...] | list[Verb]) -> Iterator[Verb]:
    for verb in verbs:
        yield from leaves(verb.verbs) if verb.verbs else (verb,)


@cache
def our_options() -> frozenset[str]:
    """Return the options that the parsers of all verbs accept."""
    app: Any = build()
    options: set[str] = set()
    for verb in leaves(VERBS):
        command = app
        for word in verb.words.split():
            command = command[word]
        for argument in command.assemble_argument_collection():
            options.update(name for name in argument.names if name.startswith("--"))
    return frozenset(options)


@cache
def written_options() -> frozenset[str]:
    """Return the options in the source code of the repository's other programs."""
    sources = [ROOT / "Makefile", *ROOT.glob("scripts/*")]
    for folder in ("bench", "fuzz", "tests", "src/requite/spark"):
        sources += ROOT.glob(f"{folder}/**/*.py")
    return frozenset(
        option
        for source in sources
        if source.is_file() and source != Path(__file__)
        for option in _OPTION.findall(source.read_text(errors="replace"))
    )


@pytest.mark.parametrize("page", PAGES)
def test_options_exist(page: str) -> None:
    named = {option for code in code_of(page) for option in _OPTION.findall(code)}
    unknown = named - our_options() - written_options() - OTHERS
    assert not unknown, f"{page} names options that no command has: {sorted(unknown)}"


def test_an_unknown_option_is_found() -> None:
    assert "--service-grace" in our_options()
    assert "--grace" not in our_options() | written_options() | OTHERS


# --- files ----------------------------------------------------------------------------------------
@cache
def files() -> frozenset[str]:
    """Return the paths of all files and folders, and every suffix of these paths, such as the file
    name."""
    found: set[str] = set()
    left_out = {"_build", "__pycache__", ".venv", ".git", "node_modules"}
    for path in ROOT.rglob("*"):
        parts = path.relative_to(ROOT).parts
        if left_out.isdisjoint(parts):
            found.update("/".join(parts[at:]) for at in range(len(parts)))
    return frozenset(found)


def paths_in(code: str) -> Iterator[str]:
    """Yield the words of inline code that can only be files of this repository."""
    if code.startswith("```"):
        return
    for word in code.strip("`").split():
        word = word.split("::")[0]
        if _PATH.fullmatch(word) and (word.endswith(_SUFFIXES) or word.startswith(_FOLDERS)):
            yield word.rstrip("/")


# Files that the reader has or creates.
READERS_FILES: Final = frozenset(
    {
        "access.toml",
        "broker.toml",
        "hello.py",
        "greetings.json",
        "greetings.py",
        "new.toml",
        "orders.py",
        "orders_api.py",
        "pool.toml",
        "requite_submit.py",
        "requite.zip",
        "later.py",
        "shop.py",
        "visit.py",
    }
)


@pytest.mark.parametrize("page", PAGES)
def test_files_exist(page: str) -> None:
    named = {path for code in code_of(page) for path in paths_in(code)}
    unknown = {path for path in named - files() - READERS_FILES if "NAME" not in path}
    assert not unknown, f"{page} names files that do not exist: {sorted(unknown)}"


def misplaced_modules(page: str) -> Iterator[str]:
    """Yield the bare module names (`b.py`) that do not exist in the folder of the last path before
    them in the same paragraph (`x/a.py`)."""
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.DOTALL)
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*[-*|] )", text):
        folder = ""
        for path in (
            path for code in re.findall(r"`[^`\n]+`", paragraph) for path in paths_in(code)
        ):
            if "/" in path and path.endswith(".py"):
                folder = path.rpartition("/")[0]
            elif (
                folder
                and path.endswith(".py")
                and f"{folder}/{path}" not in files() | READERS_FILES
            ):
                yield f"{folder}/{path}"


@pytest.mark.parametrize("page", PAGES)
def test_a_bare_module_name_is_in_the_folder_of_the_path_before_it(page: str) -> None:
    assert not list(misplaced_modules(page))


# --- prose ----------------------------------------------------------------------------------------
WIDTH: Final = 120
# Written by `make bench`, `tests.spec.conformance`, `tests.spark.tables_page` and
# `tests.cli.config_page`.
_GENERATED: Final = re.compile(
    r"docs/performance\.md|docs/reference/(tables|config)\.md|docs/protocols/([a-z]+-)?conformance\.md"
)


def long_lines(page: str) -> Iterator[int]:
    """Yield the numbers of the lines longer than 120 columns, without tables and code."""
    text = (ROOT / page).read_text()
    blank = re.sub(
        r"```.*?```", lambda code: "\n" * code.group().count("\n"), text, flags=re.DOTALL
    )
    for number, line in enumerate(blank.splitlines(), 1):
        is_prose = not line.lstrip().startswith("|") and not line.startswith("    ")
        if is_prose and len(line) > WIDTH:
            yield number


@pytest.mark.parametrize("page", [page for page in PAGES if not _GENERATED.fullmatch(page)])
def test_prose_has_at_most_120_columns(page: str) -> None:
    assert not list(long_lines(page))


# --- modules --------------------------------------------------------------------------------------
def resolves(dotted: str) -> bool:
    """Return whether a dotted name is a module, or an attribute of one."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        name = ".".join(parts[:cut])
        try:
            spec = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            continue
        if spec is None:
            continue
        thing: Any = importlib.import_module(name)
        for part in parts[cut:]:
            if not hasattr(thing, part):
                return part in getattr(thing, "__annotations__", {})
            thing = getattr(thing, part)
        return True
    return False


@pytest.mark.parametrize("page", PAGES)
def test_modules_exist(page: str) -> None:
    named = {name for code in code_of(page) for name in _MODULE.findall(code)} - READERS_FILES
    unknown = {name for name in named if not resolves(name)}
    assert not unknown, f"{page} names what no module has: {sorted(unknown)}"


def test_an_unknown_name_is_found() -> None:
    assert resolves("requite.Client.call")
    assert not resolves("requite.Client.shout")
    assert not resolves("requite.wires")


# --- extras ---------------------------------------------------------------------------------------
def test_the_page_on_installing_lists_every_extra() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = set(declared["project"]["optional-dependencies"])
    page = (ROOT / "docs/how-to/install.md").read_text()
    assert set(re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE)) >= extras
