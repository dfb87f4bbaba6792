"""`requite keys new ca`: make an authority for certificates."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

from cyclopts import Parameter

from requite.cli.keys.options import CA_CERTIFICATE, CA_KEY, Days, write_new
from requite.cli.output import say
from requite.errors import ConfigurationError
from requite.storage.private import make_folder


def ca(
    folder: Annotated[Path, Parameter(name="DIR", help="Folder of the authority.")],
    /,
    *,
    name: Annotated[
        str, Parameter(metavar="TEXT", help="Name of the authority in its certificates.")
    ] = "requite CA",
    days: Days = 3650,
) -> None:
    """Make an authority, which signs the certificates of listeners and users.

    DIR gets `ca.pem`, the certificate that all sides need to verify each other,
    and `ca.key`, the key that signs certificates: whoever has it can be any
    listener and any user, so keep it off the machines that run them.

      $ requite keys new ca keys
    """
    from requite.cli.keys.certificates import new_authority

    certificate, key = folder / CA_CERTIFICATE, folder / CA_KEY
    for path in (certificate, key):
        if path.exists():
            raise ConfigurationError(
                f"{path} exists and is never overwritten: make the authority in another folder"
            )
    issued = new_authority(name, days)
    try:
        make_folder(folder)
    except OSError as error:
        raise ConfigurationError(f"cannot make the folder {folder}: {error.strerror}") from error
    write_new(key, issued.key)
    write_new(certificate, issued.certificate)
    say(f"wrote {certificate} (give it to all sides) and {key} (keep it secret)")
    say(f"next: requite keys new listener localhost 127.0.0.1 --ca {quote(str(folder))}")
