"""Writes docs/reference/config.md: every option that may stand in the file of `--config`.

python -m tests.cli.config_page        writes the page
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from enum import Enum
from inspect import Parameter
from pathlib import Path
from typing import Any, Final

from requite.cli.app import build
from requite.cli.config import key_of, stands_in_file, type_of

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "config.md"
VERBS: Final = ("broker", "worker", "device", "queue", "gateway", "titanic serve")

_INTRODUCTION: Final = """\
# Configure a server (broker.toml)

`requite broker`, `worker`, `device`, `queue`, `gateway` and `titanic serve` read options from a
TOML file: `requite broker --config broker.toml`.

```toml
# broker.toml
bind = ["tcp://10.0.0.5:5555", "ipc:///run/requite/broker.sock"]
access = "/etc/requite/access.toml"
pending_bytes_max = 4_294_967_296
drain_timeout = 60
journal = "/var/lib/requite/journal"
```

- A key is the long name of an option, with underscores: `drain_timeout` is `--drain-timeout`. All
  keys are at the top of the file; there are no tables. A worker's functions are `targets`.
- The command line wins over the environment, the environment over the file, and the file over
  defaults. A list on the command line replaces the list of the file. `--tell-old-clients=false`
  turns off an option that the file turns on.
- Relative paths are relative to the working directory, as on the command line.
- The file holds no secrets: a URL with a password is refused. Name the files that do with `access`
  or `credentials_file`.
- An unknown key, a wrong type or a value out of range ends the command with exit code 2 and a
  message that names file and key.
- A server reads the file when it starts, and not again on SIGHUP.

`--check` checks the options and the files that they name, and starts nothing. It exits with 0 or 2:

```console
$ requite broker --config broker.toml --check
broker.toml is valid; the broker would listen on tcp://10.0.0.5:5555; for the users of access.toml
$ requite broker --config typo.toml --check
requite: typo.toml: unknown option drain_time; did you mean drain_timeout?
```

A pool has a file of its own: [pool.toml](pool-toml.md).
"""


def render() -> str:
    """Return the page."""
    lines = [_INTRODUCTION]
    for verb in VERBS:
        lines += [f"## Keys of `requite {verb}`", "", "| key | value | default | meaning |"]
        lines += ["|---|---|---|---|", *_rows(verb), ""]
    return "\n".join(lines)


def _rows(verb: str) -> Iterator[str]:
    app: Any = build()
    for word in verb.split():
        app = app[word]
    for argument in app.assemble_argument_collection():
        if stands_in_file(argument):
            text, named = _meaning(argument.parameter.help)
            default = named or _default(argument)
            cells = (f"`{key_of(argument)}`", _value(argument), default, text)
            yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _meaning(text: str) -> tuple[str, str]:
    """Split the help of an option into its meaning and the default that it names, if any."""
    found = re.fullmatch(r"(.*?) ?\[default: (.*)\]", text)
    return (found[1], found[2]) if found else (text, "")


def _value(argument: Any) -> str:
    choices = argument.get_choices()
    if choices:
        return " or ".join(f'`"{choice}"`' for choice in choices)
    return type_of(argument).partition(", such as")[0]


def _default(argument: Any) -> str:
    if argument.required:
        return "required"
    value = argument.field_info.default
    if value is Parameter.empty:  # of `*services`
        return "none"
    match value:
        case None | ():
            return "none"
        case bool():
            return f"`{str(value).lower()}`"
        case Enum() | str():
            return f'`"{value}"`'
        case tuple():
            return f"`{list(value)}`".replace("'", '"')
        case _ if callable(argument.show_default):
            return f"`{value}` ({argument.show_default(value)})"
        case _:
            return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def main(page: Path = PAGE) -> int:
    """Write the page; return the exit status."""
    page.write_text(render(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
