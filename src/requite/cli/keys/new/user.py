"""`requite keys new user`: make the certificate of a client or worker."""

from __future__ import annotations

from shlex import quote
from typing import Annotated
from urllib.parse import quote as escape

from cyclopts import Parameter

from requite.cli.keys.options import CA_CERTIFICATE, CaFolder, Days, Out, place_for, write_new
from requite.cli.output import say


def user(
    name: Annotated[str, Parameter(name="NAME", help="Name of the user: `shop` is `CN=shop`.")],
    /,
    *,
    ca: CaFolder,
    days: Days = 365,
    out: Out = None,
) -> None:
    """Make the certificate of a user: of a client, a worker or an operator.

    The file has the certificate and its private key. Nobody can listen with it.

      $ requite keys new user shop --ca keys
    """
    from requite.cli.keys.certificates import Authority

    authority, path = Authority.read(ca), place_for(name, ca, out)
    issued = authority.issue_user(name, days)
    write_new(path, issued.key + issued.certificate)
    options = f"ca={escape(str(ca / CA_CERTIFICATE))}&certificate={escape(str(path))}"
    url = f"mdp+tls://localhost:5555/echo?{options}"
    say(f"wrote {path} (a certificate and its private key; keep it secret)")
    say(f"next: requite call {quote(url)} hello")
