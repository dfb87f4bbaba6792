"""The look of all charts of benchmarks, and how they are saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

COLOURS: Final = ("#0072b2", "#d55e00", "#56b4e9", "#1b2f4b")
_INK: Final = "#22303c"
_FAINT: Final = "#e3e8ec"


def save(chart: Any, path: Path) -> None:
    """Write an Altair chart as SVG."""
    import vl_convert

    styled = (
        chart.configure(font="Arial, Helvetica, sans-serif", background="white", padding=8)
        .configure_view(stroke=None)
        .configure_axis(labelColor=_INK, titleColor=_INK, gridColor=_FAINT, labelFontSize=12)
        .configure_title(color=_INK, fontSize=13, anchor="start")
    )
    path.write_text(vl_convert.vegalite_to_svg(styled.to_dict()) + "\n")
