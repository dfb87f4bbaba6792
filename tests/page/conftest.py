"""A browser for the tests of the page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.browser import Page, browsing


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    async with browsing(tmp_path / "browser") as page:
        yield page
        assert page.complaints == []
