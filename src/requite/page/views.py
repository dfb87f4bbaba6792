"""The parts of pages, rendered once for each reading and each view."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeAlias, TypeVar

from requite.page.home import Home, HomeView
from requite.page.readings import BrokerSnapshot
from requite.page.services import Services, ServiceView

VIEWS_MAX: Final = 64
"""Views of a reading whose parts are kept: a megabyte each at most."""

View: TypeAlias = HomeView | ServiceView
Parts: TypeAlias = Mapping[str, str]


_S = TypeVar("_S")
_V = TypeVar("_V")


class Rendered(Generic[_S, _V]):
    """The parts that `render` makes of views `_V`; keeps those of the latest reading `_S` for all
    who look."""

    def __init__(self, render: Callable[[_S, _V], Parts | None]) -> None:
        self._make: Final = render
        self._of: _S | None = None
        self._rendered: dict[_V, Parts] = {}

    def parts(self, snapshot: _S, view: _V) -> Parts | None:
        """Return the HTML of each part that changes, by its id; None if what the view shows does
        not exist."""
        if snapshot is not self._of:
            self._of = snapshot
            self._rendered.clear()
        known = self._rendered.get(view)
        if known is not None:
            return known
        parts = self._make(snapshot, view)
        if parts is not None:
            if len(self._rendered) >= VIEWS_MAX:
                del self._rendered[next(iter(self._rendered))]
            self._rendered[view] = parts
        return parts


class Views(Rendered[BrokerSnapshot, View]):
    """Renders the views of the page of a broker."""

    def __init__(self, home: Home, services: Services) -> None:
        super().__init__(self._render)
        self._home: Final = home
        self._services: Final = services

    def _render(self, snapshot: BrokerSnapshot, view: View) -> Parts | None:
        if isinstance(view, HomeView):
            return self._home.parts(snapshot, view)
        return self._services.parts(snapshot, view)
