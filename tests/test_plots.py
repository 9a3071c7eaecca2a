"""The timeline draws each span where it belongs, in a colour that its label keeps."""

import matplotlib
import pytest

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402

from utils import plots  # noqa: E402

TRACKS = {"CPU": [("launch", 100.0, 5.0), ("launch", 110.0, 5.0)],
          "GPU": [("kernel", 105.0, 40.0), ("copy", 150.0, 10.0)]}


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def bars(ax) -> list[tuple]:
    """(start, width, row, colour) of every bar."""
    return [(b.get_x(), b.get_width(), b.get_y() + b.get_height() / 2, b.get_facecolor()) for b in ax.patches]


def test_a_timeline_begins_at_the_earliest_span_and_keeps_durations():
    ax = plots.timeline(TRACKS, "two tracks")
    assert [(start, width) for start, width, _, _ in bars(ax)] == [(0, 5), (10, 5), (5, 40), (50, 10)]
    assert ax.get_xlim() == (0, 60) and "µs" in ax.get_xlabel()


def test_tracks_lie_from_top_to_bottom_in_the_order_given():
    ax = plots.timeline(TRACKS, "two tracks")
    assert [round(row) for _, _, row, _ in bars(ax)] == [0, 0, 1, 1]
    assert ax.yaxis_inverted() and [t.get_text() for t in ax.get_yticklabels()] == list(TRACKS)


def test_a_label_keeps_its_colour_on_every_track_and_stands_in_the_legend():
    ax = plots.timeline({"a": [("x", 0, 1), ("y", 1, 2)], "b": [("x", 5, 1)]}, "one label twice")
    (*_, first), (*_, other), (*_, again) = bars(ax)
    assert first == again != other
    assert {t.get_text() for t in ax.get_legend().get_texts()} == {"x", "y"}


def test_only_the_seven_largest_labels_have_a_colour():
    ax = plots.timeline({"a": [(f"op {i}", 10 * i, 1 + i) for i in range(9)]}, "nine labels")
    colours = [colour for *_, colour in bars(ax)]
    assert colours[0] == colours[1] == matplotlib.colors.to_rgba(plots.GREY) and len(set(colours)) == 8
    assert {t.get_text() for t in ax.get_legend().get_texts()} == {f"op {i}" for i in range(2, 9)}


def test_a_label_is_written_only_into_a_bar_that_holds_it():
    ax = plots.timeline({"a": [("long enough", 0, 90), ("too short", 91, 1)]}, "labels")
    assert [t.get_text() for t in ax.texts] == ["long enough"]


@pytest.mark.parametrize("tracks, words", [
    ({}, "no span"), ({"a": []}, "no span"), ({"a": [("x", 3, -1)]}, "negative")])
def test_what_cannot_be_drawn_is_refused_with_a_sentence(tracks, words):
    with pytest.raises(ValueError, match=words):
        plots.timeline(tracks, "nothing")
