"""The course's figures in one style: rooflines, sweeps, bars, boxes.

Colours are Okabe and Ito's, which colour-blind readers can tell apart, and each has its own marker, so
that a figure reads in grey too. The background is opaque white, readable in a dark notebook.
"""

import math
from collections.abc import Iterable, Sequence

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes

from utils.roofline import Machine

COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]
GREY = "#666666"
SIZE = (7.2, 4.3)


plt.rcParams.update({
    "figure.figsize": SIZE, "figure.dpi": 100, "figure.facecolor": "white", "axes.facecolor": "white",
    "savefig.facecolor": "white", "text.color": "black", "axes.labelcolor": "black", "axes.edgecolor": "#333333",
    "xtick.color": "#333333", "ytick.color": "#333333", "axes.grid": True, "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6, "axes.axisbelow": True, "axes.titlesize": 11, "axes.titlelocation": "left",
    "font.size": 9.5, "legend.fontsize": 8.5, "legend.frameon": False, "lines.linewidth": 1.6,
    "axes.spines.top": False, "axes.spines.right": False,
})


def new(title: str, xlabel: str, ylabel: str, size: tuple[float, float] = SIZE) -> Axes:
    """A new figure with one set of axes; title and labels (with units) are demanded."""
    figure, ax = plt.subplots(figsize=size, layout="constrained")
    ax.set(title=title, xlabel=xlabel, ylabel=ylabel)
    return ax


def roofline(machine: Machine, dtypes: Sequence[str], title: str, roof: str = "copy",
             x: tuple[float, float] = (2**-4, 2**12)) -> Axes:
    """Empty roofline: intensity (FLOP/B) against FLOP/s, log–log, the same axes in every lesson.

    Draws the memory roof `roof` ("copy" or "read") and one compute roof for each of `dtypes`, labelled.
    """
    missing = [d for d in dtypes if d not in machine.peak]
    if missing:
        raise ValueError(f"{machine.name} has no {missing[0]} roof; known are {', '.join(sorted(machine.peak))}.")
    ax = new(title, "arithmetic intensity (FLOP per byte)", "TFLOP/s")
    bandwidth = machine.read if roof == "read" else machine.copy
    top = max(machine.peak[d] for d in dtypes)
    for d in sorted(dtypes, key=machine.peak.get):
        ridge = machine.peak[d] / bandwidth
        ax.plot([ridge, x[1]], [machine.peak[d] / 1e12] * 2, color=GREY)
        ax.text(x[1], machine.peak[d] / 1e12 * 1.15, f"{d}: {_si(machine.peak[d])}FLOP/s", ha="right", color=GREY)
    ridge = top / bandwidth
    ax.plot([x[0], ridge], [x[0] * bandwidth / 1e12, top / 1e12], color=GREY)
    ax.text(x[0] * 1.15, x[0] * 1.15 * bandwidth / 1e12 * 1.6, f"{roof}: {_si(bandwidth)}B/s", color=GREY,
            rotation=33, rotation_mode="anchor")
    ax.set(xscale="log", yscale="log", xlim=x, ylim=(x[0] * bandwidth / 1e12 / 2, top / 1e12 * 3))
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(lambda v, _: f"{v:g}" if v >= 1 else f"1/{1 / v:g}")
    return ax


def points(ax: Axes, intensity: Sequence[float], tflops: Sequence[float], label: str, index: int = 0,
           predicted: bool = False, names: Sequence[str] = (), line: bool = False) -> None:
    """Add points to a roofline or sweep: filled when measured, hollow when predicted."""
    colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
    ax.plot(intensity, tflops, marker=marker, color=colour, label=label, markersize=6.5 if predicted else 5,
            linestyle="-" if line else "none", markerfacecolor="none" if predicted else colour, markeredgewidth=1.2)
    if ax.get_yscale() == "log" and len(tflops):  # a slow point must not fall off the figure
        ax.set_ylim(bottom=min(ax.get_ylim()[0], min(tflops) / 2))
    last: dict[int, float] = {}
    for x, y, name in sorted(zip(intensity, tflops, names), key=lambda p: -p[1]):
        column = round(math.log2(x))  # names of points close to each other go below each other
        crowded = column in last and last[column] / y < 1.5
        last[column] = min(last[column] / 1.45, y) if crowded else y
        shift = -3 - 22 * math.log10(y / last[column]) / math.log10(2) if crowded else -3
        ax.annotate(name, (x, y), textcoords="offset points", xytext=(7, shift), fontsize=7.5, color=colour)


def sweep(table: pd.DataFrame, x: Sequence[float], y: Sequence[float], title: str, xlabel: str, ylabel: str,
          roof: float | None = None, roof_label: str = "", logy: bool = False) -> Axes:
    """One line an implementation of `table`, y over x (one value a row), log₂ x; an optional dashed roof."""
    ax = new(title, xlabel, ylabel)
    table = table.assign(_x=list(x), _y=list(y))
    for i, (name, part) in enumerate(table.groupby("implementation", sort=False)):
        points(ax, part["_x"], part["_y"], name, i, line=True)
    ax.set_xscale("log", base=2)
    if logy:
        ax.set_yscale("log")
    else:
        ax.set_ylim(bottom=0)
    if roof is not None:
        ax.axhline(roof, color=GREY, linestyle="--", linewidth=1.2)
        ax.text(0.01, roof, roof_label, color=GREY, va="bottom", fontsize=8.5, transform=ax.get_yaxis_transform())
    ax.legend()
    return ax


def bars(labels: Sequence[str], values: Sequence[float], title: str, xlabel: str, notes: Sequence[str] = (),
         log: bool = False) -> Axes:
    """Horizontal bars, the first label on top, each with its value (or its note) at the end."""
    ax = new(title, xlabel, "", (7.2, 0.42 * len(labels) + 1.1))
    rows = range(len(labels))
    ax.barh(list(rows), values, color=[COLOURS[i % len(COLOURS)] for i in rows], height=0.62)
    ax.set_yticks(list(rows), labels)
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    if log:
        ax.set_xscale("log")
    for i, value in enumerate(values):
        ax.text(value, i, "  " + (notes[i] if notes else f"{value:.3g}"), va="center", fontsize=8.5)
    ax.set_xlim(right=max(values) * (8 if log else 1.22))
    return ax


def stack(boxes: Iterable[tuple[str, str]], title: str, note: str = "") -> Axes:
    """Boxes on top of each other, a name and a line of text each: software stacks, memory hierarchies."""
    boxes = list(boxes)
    figure, ax = plt.subplots(figsize=(7.2, 0.52 * len(boxes) + 0.7), layout="constrained")
    ax.set_title(title)
    for i, (name, text) in enumerate(boxes):
        y = len(boxes) - i
        ax.add_patch(plt.Rectangle((0, y - 0.42), 1, 0.84, facecolor=COLOURS[i % len(COLOURS)], alpha=0.16,
                                   edgecolor=COLOURS[i % len(COLOURS)]))
        ax.text(0.02, y, name, va="center", fontweight="bold")
        ax.text(0.30, y, text, va="center", fontsize=8.8)
    ax.set(xlim=(-0.01, 1.01), ylim=(0.4, len(boxes) + 0.6))
    ax.axis("off")
    if note:
        ax.text(0, 0.42, note, color=GREY, fontsize=8)
    return ax


def tiles(levels: Sequence[tuple[str, int, int]], title: str) -> None:
    """Nested tilings side by side: (name, rows, columns) each; a cell of one is the whole of the next."""
    figure, axes = plt.subplots(1, len(levels), figsize=(7.2, 2.9), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    for i, (ax, (name, rows, columns)) in enumerate(zip(axes, levels)):
        for r in range(rows):
            for c in range(columns):
                chosen = (r, c) == (1 if rows > 1 else 0, 1 if columns > 1 else 0) and i + 1 < len(levels)
                ax.add_patch(plt.Rectangle((c / columns, r / rows), 1 / columns, 1 / rows, edgecolor="#333333",
                                           facecolor=COLOURS[i], alpha=0.75 if chosen else 0.15))
        ax.set(xlim=(-0.02, 1.02), ylim=(1.02, -0.02))
        ax.set_title(name, fontsize=8.5)
        ax.axis("off")


def timeline(tracks: dict[str, Sequence[tuple[str, float, float]]], title: str, xlabel: str = "time (µs)") -> Axes:
    """Spans on parallel tracks, the first on top: track → [(label, start, duration)], in one unit of time.

    The axis begins at the earliest span. The seven labels that take most of the time have a colour each, the same on
    every track, and stand in the legend; all others are grey. A label is written into its bar where it fits.
    Raises ValueError without any span, or if a span has a negative duration.
    """
    spans = [span for track in tracks.values() for span in track]
    if not spans:
        raise ValueError("tracks holds no span: there is nothing to draw.")
    negative = [label for label, _, duration in spans if duration < 0]
    if negative:
        raise ValueError(f"the span {negative[0]!r} has a negative duration: give (label, start, duration).")
    total: dict[str, float] = {}
    for label, _, duration in spans:
        total[label] = total.get(label, 0) + duration
    colour = dict(zip(sorted(total, key=total.get, reverse=True), COLOURS[:7]))
    begin, end = min(s for _, s, _ in spans), max(s + d for _, s, d in spans)
    ax = new(title, xlabel, "", (7.2, 0.5 * len(tracks) + 1.7))
    for row, track in enumerate(tracks.values()):
        for label, start, duration in track:
            ax.barh(row, duration, left=start - begin, height=0.7, color=colour.get(label, GREY), edgecolor="white",
                    linewidth=0.4)
            if duration > 0.013 * (len(label) + 1) * (end - begin):
                ax.text(start - begin + duration / 2, row, label, ha="center", va="center", color="white", fontsize=7)
    ax.set_yticks(range(len(tracks)), list(tracks))
    ax.set(xlim=(0, max(end - begin, 1e-9)), ylim=(len(tracks) - 0.5, -0.5))
    ax.grid(axis="y", visible=False)
    ax.legend([plt.Rectangle((0, 0), 1, 1, color=c) for c in colour.values()], list(colour), ncols=3, fontsize=7.5,
              loc="upper center", bbox_to_anchor=(0.5, -0.55 / (0.5 * len(tracks) + 0.6)))
    return ax


def show() -> None:
    """Draw the figures made so far."""
    plt.show()


def _si(value: float) -> str:
    power = min(int(math.log10(value) // 3), 5) if value >= 1 else 0
    return f"{value / 1000**power:.3g} {['', 'k', 'M', 'G', 'T', 'P'][power]}"
