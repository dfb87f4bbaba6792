"""`requite keys new curve`: make a key for CURVE."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from requite.cli.output import say


def curve(
    file: Annotated[Path, Parameter(help="File to create; it must not exist.")],
    /,
) -> None:
    """Write a new secret key for CURVE to FILE, and print its public key.

    Only you may read FILE (mode 0600). Each broker, client and worker has its own.

      $ requite keys new curve broker.key
    """
    from requite.shell.curve import create_key_file

    say(create_key_file(file))
