"""`requite access hash`: hash a password for an access file."""

from __future__ import annotations

import sys
from getpass import getpass

from requite.cli.options import QUIET, Logging
from requite.cli.output import say
from requite.errors import ConfigurationError


def hash(*, logging: Logging = QUIET) -> None:
    """Hash a password for an access file.

    Asks for the password at the terminal, or reads the first line of standard
    input, and prints the value of `password` for `[user.NAME]`. Passwords never
    belong on a command line, which all users of the machine can read.

      $ requite access hash < password.txt
    """
    from requite.access.passwords import hash_password

    logging.start()
    if sys.stdin.isatty():
        password = getpass("Password: ")
        if getpass("Again: ") != password:
            raise ConfigurationError("the two passwords differ")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    say(hash_password(password))
