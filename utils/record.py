"""Measurements kept beside the course, so that a reader without a GPU sees the same figures.

One tidy CSV a GPU, `utils/recorded/<gpu>.csv`, one row a measurement. Lessons write to it only while
recording (`COURSE_RECORD=1`), from the very run whose outputs are stored in the notebook.
"""

import datetime
import os
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from utils import bench, device
from utils.roofline import Machine

RECORDED = Path(__file__).resolve().parent / "recorded"

COLUMNS = ["lesson", "operator", "implementation", "library", "dtype", "shape", "flops", "bytes", "us", "us_p20",
           "us_p80", "roof", "roof_fraction", "vs_best_library", "gpu", "torch", "triton", "date"]
TEXT = {name: str for name in ("shape", "gpu", "torch", "triton", "date")}  # never numbers, whatever they look like


def recording() -> bool:
    """Whether measurements are being written down in this run: on a GPU, with COURSE_RECORD=1 set."""
    return device.ON_GPU and os.environ.get("COURSE_RECORD") == "1"


def slug(gpu: str) -> str:
    """File name of a GPU: "NVIDIA H200" → "nvidia-h200"."""
    return "-".join("".join(c if c.isalnum() else " " for c in gpu.lower()).split())


def _write(lesson: str, operator: str, rows: pd.DataFrame) -> None:
    path = RECORDED / f"{slug(device.NAME)}.csv"
    RECORDED.mkdir(exist_ok=True)
    old = pd.read_csv(path, dtype=TEXT) if path.exists() else pd.DataFrame(columns=COLUMNS)
    old = old[~((old.lesson == lesson) & (old.operator == operator))]
    rows = rows.assign(lesson=lesson, operator=operator, gpu=device.NAME, torch=torch_version(),
                       triton=device.VERSIONS["triton"], date=datetime.date.today().isoformat())
    # whole lessons stay together, in the order in which they were measured
    table = pd.concat([old, rows[COLUMNS]]) if len(old) else rows[COLUMNS]
    table.sort_values("lesson", kind="stable").to_csv(path, index=False, float_format="%.6g", lineterminator="\n")


def torch_version() -> str:
    """torch's version without its build tag ("2.11.0+cu130" → "2.11.0")."""
    return (device.VERSIONS["torch"] or "").split("+")[0]


def rows(tables: pd.DataFrame | list[pd.DataFrame]) -> pd.DataFrame:
    """Tables of `bench.compare` in the columns of the CSV (without lesson, GPU, versions and date)."""
    parts = []
    for t in [tables] if isinstance(tables, pd.DataFrame) else tables:
        work = t.attrs["work"]
        parts.append(pd.DataFrame({
            "implementation": t["implementation"], "library": t["implementation"].map(bench.is_library),
            "dtype": t.attrs["dtype"], "shape": t.attrs["shape"], "flops": work["flops"], "bytes": work["bytes"],
            "us": t["us"], "us_p20": t["us_p20"], "us_p80": t["us_p80"], "roof": t["roof"],
            "roof_fraction": t["% of roof"].astype(float) / 100,
            "vs_best_library": t["× best library"].astype(float)}))
    return pd.concat(parts, ignore_index=True)


def save_roofs(lesson: str, machine: Machine) -> None:
    """Write the roofs under which a lesson's points stand (operator "roof"); no-op unless recording.

    A row holds the bytes or FLOPs of one second, so that bytes / us is the roof as for any other row.
    """
    if not recording():
        return
    rates = {"copy": machine.copy, "read": machine.read, **machine.peak}
    memory = ("copy", "read")
    _write(lesson, "roof", pd.DataFrame([{
        "implementation": kind, "library": False, "dtype": "" if kind in memory else kind, "shape": "",
        "flops": 0 if kind in memory else rate, "bytes": rate if kind in memory else 0, "us": 1e6, "us_p20": 1e6,
        "us_p80": 1e6, "roof": kind, "roof_fraction": 1.0, "vs_best_library": None} for kind, rate in rates.items()]))


def load(lesson: str, operator: str | None = None, gpu: str = "nvidia-h200") -> pd.DataFrame:
    """The recorded rows of a lesson, of one operator or of all; ValueError names what is missing."""
    path = RECORDED / f"{gpu}.csv"
    if not path.exists():
        known = ", ".join(sorted(p.stem for p in RECORDED.glob("*.csv"))) or "none"
        raise ValueError(f"nothing is recorded for the GPU {gpu!r}; recorded are: {known}.")
    table = pd.read_csv(path, keep_default_na=False, na_values=[""], dtype=TEXT)
    table = table[(table.lesson == lesson) & ((table.operator == operator) | (operator is None))]
    if table.empty:
        raise ValueError(f"{path.name} holds no rows of lesson {lesson!r}, operator {operator!r}.")
    return table.reset_index(drop=True)


def measured(lesson: str, operator: str,
             measure: Callable[[], pd.DataFrame | list[pd.DataFrame]]) -> pd.DataFrame:
    """Rows of a lesson's measurement: on a GPU measured now, elsewhere the recorded ones.

    `measure` returns a table of `bench.compare` or a list of them; it is called on a GPU only, and
    its rows are written down while recording. `rows.attrs["where"]` says where they come from:
    a machine and a date, for the title of the figure.
    """
    if device.ON_GPU:
        table = rows(measure())
        if recording():
            _write(lesson, operator, table)
        table.attrs["where"] = device.NAME
    else:
        table = load(lesson, operator)
        table.attrs["where"] = f"recorded on {table.gpu[0]}, {table.date[0]}"
    return table
