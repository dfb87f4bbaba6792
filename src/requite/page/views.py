"""The parts of pages, rendered once for each reading of the broker and each view."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from requite.page.home import Home, HomeView
from requite.page.readings import Sight
from requite.page.services import Services, ServiceView

VIEWS_MAX: Final = 64
"""Views of a reading whose parts are kept: a megabyte each at most."""

View: TypeAlias = HomeView | ServiceView
Parts: TypeAlias = Mapping[str, str]


class Views:
    """Renders the parts of views, and keeps those of the latest reading for all who look."""

    def __init__(self, home: Home, services: Services) -> None:
        self._home: Final = home
        self._services: Final = services
        self._of: Sight | None = None
        self._rendered: dict[View, Parts] = {}

    def parts(self, sight: Sight, view: View) -> Parts | None:
        """Return the HTML of each part that changes, by its id; None if there is no such
        service."""
        if sight is not self._of:
            self._of = sight
            self._rendered.clear()
        known = self._rendered.get(view)
        if known is not None:
            return known
        parts = self._render(sight, view)
        if parts is not None:
            if len(self._rendered) >= VIEWS_MAX:
                del self._rendered[next(iter(self._rendered))]
            self._rendered[view] = parts
        return parts

    def _render(self, sight: Sight, view: View) -> Parts | None:
        if isinstance(view, HomeView):
            return self._home.parts(sight, view)
        return self._services.parts(sight, view)
