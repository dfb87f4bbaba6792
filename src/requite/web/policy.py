"""The headers of web pages: nothing comes from another host, and no text is ever code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action {forms}; frame-ancestors 'none'"
)


def page_headers(*, forms: str = "'none'", cache: str = "no-cache") -> Mapping[str, str]:
    """Return the headers of a page. `forms` says where its forms may lead, in the terms of CSP."""
    return {
        "Content-Security-Policy": _POLICY.format(forms=forms),
        "X-Content-Type-Options": "nosniff",
        # With "no-referrer", browsers send forms without their origin, too.
        "Referrer-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": cache,
    }
