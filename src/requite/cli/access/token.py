"""`requite access token`: make a token for an access file."""

from __future__ import annotations

from requite.cli.options import QUIET, Logging
from requite.cli.output import complain, say


def token(*, logging: Logging = QUIET) -> None:
    """Make a token for a user of `requite gateway`.

    Prints the token on stdout, and on stderr the line of `[user.NAME]` that has
    its hash. The access file does not contain the token, so store it now.

      $ requite access token > token.txt
    """
    from requite.access.tokens import hash_token, new_token

    logging.start()
    made = new_token()
    say(made)
    complain(f'for the access file: token = "{hash_token(made)}"')
