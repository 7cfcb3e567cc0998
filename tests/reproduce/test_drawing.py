"""Figures of studies: a legend covers no curve."""

import pytest

from tardigrad.reproduce.drawing import legend, panels


@pytest.mark.parametrize(("named", "below", "inside"), [
    (4, None, True), (5, None, False), (8, None, False), (2, True, False), (8, False, True),
])  # fmt: skip
def test_a_long_legend_stands_under_its_panel(named: int, below: bool | None, inside: bool) -> None:
    figure, (axes, _) = panels(2, "two panels")
    for number in range(named):
        axes.plot([0, 1], [0, number], label=f"method {number}")
    axes.set_xlabel("time (s)")
    legend(axes, below)
    figure.draw_without_rendering()
    found = axes.get_legend()
    assert found is not None
    frame, words = axes.get_window_extent(), found.get_window_extent()
    assert (words.y0 >= frame.y0) == inside
    assert words.y0 >= 0  # and none of it is cut off
    if not inside:
        label = axes.xaxis.label.get_window_extent()
        assert words.y1 <= label.y0
