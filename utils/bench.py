"""The course's only timer, and tables of contestants.

On a GPU a sample is many calls in a row over rotating copies of the arguments, at least four times
the L2 together, so that every call finds a cold cache; as a CUDA graph where that is faster, so that
no Python is timed. Contestants take turns, forwards and backwards, so that none of them
always meets the hottest clocks. On a CPU it is the median of repeats.
"""

import collections
import dataclasses
import statistics
import time as _time
from collections.abc import Callable, Sequence

import pandas as pd
import torch

from utils import check, device, roofline
from utils.cost import Work

SAMPLES = 25  # replays a contestant on a GPU; never fewer than 20
WARM_S = 0.2  # seconds of work before the first sample
NOISE, ATTEMPTS = 0.03, 3  # measure again, at most twice, while p20 and p80 lie further apart than this share
TARGET_US = 2000  # a sample is about this much work, so that what starts it does not count
MAX_CALLS = 400  # calls in one sample


@dataclasses.dataclass(frozen=True)
class Timing:
    """Microseconds a call: median, 20th and 80th percentile; `how` says how it was measured."""

    us: float
    us_p20: float
    us_p80: float
    samples: int
    how: str
    cached: bool = False


def _summary(samples: Sequence[float], how: str, cached: bool = False) -> Timing:
    ordered = sorted(samples)
    at = lambda share: ordered[round(share * (len(ordered) - 1))]
    return Timing(statistics.median(ordered), at(0.2), at(0.8), len(ordered), how, cached)


def _bytes(values: object) -> int:
    if isinstance(values, torch.Tensor):
        return values.numel() * values.element_size()
    return sum(map(_bytes, values)) if isinstance(values, (tuple, list)) else 0


def _clone(x: object) -> object:
    if not isinstance(x, torch.Tensor):
        return x
    return torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=x.device).copy_(x)


def argument_sets(args: Sequence) -> list[tuple]:
    """Copies of `args` that together are four times the L2, so that a round through them finds it cold."""
    size = max(_bytes(args), 1)
    count = min(-(-4 * device.l2_bytes() // size), 256, max(int(0.3 * device.free_bytes() / size), 1))
    return [tuple(args)] + [tuple(_clone(a) for a in args) for _ in range(count - 1)]


class _Repeated:
    """`fn` called many times in a row over the argument sets, launched the faster of two ways.

    As one CUDA graph a call costs no Python, which short calls need. Issued one by one, behind a call that is not
    timed, the queue never runs dry if calls are long; torch's copy, for one, is faster so than as a node of a graph.
    """

    def __init__(self, fn: Callable, sets: list[tuple]) -> None:
        self.fn, self.sets = fn, sets
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # warm up outside a capture: compile, tune, allocate
            out = [fn(*sets[i % len(sets)]) for i in range(3)][-1]
        torch.cuda.current_stream().wait_stream(side)
        self.cached = len(sets) * (_bytes(sets[0]) + _bytes(out)) < 2 * device.l2_bytes()
        del out
        self.calls, self.graph = 3, None
        estimate = self.sample()
        self.calls = int(min(max(len(sets), -(-TARGET_US // max(estimate, 1))), MAX_CALLS))
        in_a_row = min(self.sample() for _ in range(3))
        self.graph, self.kept = torch.cuda.CUDAGraph(), None
        with torch.cuda.graph(self.graph):
            self.kept = self._calls()
        if min(self.sample() for _ in range(3)) > in_a_row:
            self.graph = self.kept = None

    def _calls(self) -> collections.deque:
        kept: collections.deque = collections.deque(maxlen=len(self.sets))  # so that outputs rotate too
        for i in range(self.calls):
            kept.append(self.fn(*self.sets[i % len(self.sets)]))
        return kept

    def sample(self) -> float:
        """One sample: µs a call."""
        if self.graph is not None:
            return _between(self.graph.replay) / self.calls
        self.fn(*self.sets[-1])
        return _between(self._calls) / self.calls

    def how(self) -> str:
        """How it was measured, in a few words."""
        what = "in a graph" if self.graph is not None else "in a row"
        return f"{self.calls} calls {what} over {len(self.sets)} argument sets"


def _between(action: Callable[[], object]) -> float:
    """µs on the GPU between two events around `action`."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    action()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1000


def time_cpu(fn: Callable, *args, seconds: float = 0.3) -> Timing:
    """Time fn(*args) on the CPU: the median of at least five repeats, as many as fit into `seconds`."""
    fn(*args)
    samples, stop = [], _time.perf_counter() + seconds
    while len(samples) < 5 or (_time.perf_counter() < stop and len(samples) < 200):
        start = _time.perf_counter()
        fn(*args)
        samples.append((_time.perf_counter() - start) * 1e6)
    return _summary(samples, "cpu, median of repeats")


def time_launches(fn: Callable, *args, calls: int = 200) -> Timing:
    """Time fn(*args) as Python issues it, launch cost included: wall time of `calls` calls and one wait."""
    sync = torch.cuda.synchronize if device.ON_GPU else (lambda: None)
    samples = []
    for _ in range(SAMPLES + 3):
        sync()
        start = _time.perf_counter()
        for _ in range(calls):
            fn(*args)
        sync()
        samples.append((_time.perf_counter() - start) * 1e6 / calls)
    return _summary(samples[3:], f"eager, {calls} calls and one wait")


def time_many(contestants: dict[str, Callable], args: Sequence, cold: bool = True) -> dict[str, Timing]:
    """Time several functions on the same arguments, interleaved (see the module's docstring).

    cold=False repeats on the very same buffers, so that what fits into the L2 stays there.
    """
    if not device.ON_GPU:
        return {name: time_cpu(fn, *args) for name, fn in contestants.items()}
    sets = argument_sets(args) if cold else [tuple(args)]
    runs = {name: _Repeated(fn, sets) for name, fn in contestants.items()}
    for _ in range(ATTEMPTS):
        samples = _sample(runs)
        results = {name: _summary(samples[name], run.how(), run.cached) for name, run in runs.items()}
        if all(t.us_p80 - t.us_p20 <= NOISE * t.us for t in results.values()):
            break
    return results


def _sample(runs: dict[str, _Repeated]) -> dict[str, list[float]]:
    """Warm up, then let the contestants take turns, forwards and backwards."""
    stop = _time.perf_counter() + WARM_S
    while _time.perf_counter() < stop:
        for run in runs.values():
            run.sample()
    samples: dict[str, list[float]] = {name: [] for name in runs}
    order = list(runs)
    for turn in range(SAMPLES):
        for name in order:
            samples[name].append(runs[name].sample())
        order = order[::-1] if turn % 2 else order[1:] + order[:1]
    return samples


def time(fn: Callable, *args) -> Timing:
    """Time one function: microseconds a call on the GPU (cold L2, no launch cost) or on the CPU."""
    return time_many({"fn": fn}, args)["fn"]


def _to_numpy(x: object) -> object:
    if not isinstance(x, torch.Tensor):
        return x
    return (x.detach().float() if x.is_floating_point() else x).cpu().numpy()


def _compared(name: str, fn: Callable, args: Sequence, reference: object, depth: int,
              scale: float | Sequence[float] | None, inner: torch.dtype | None) -> None:
    for i, (got, want, part) in enumerate(check.paired(fn(*args), reference, name)):
        got = torch.as_tensor(got)
        own = scale[i] if isinstance(scale, Sequence) else scale
        check.agree(got, torch.as_tensor(want).to(got.device), depth=depth, scale=own, inner=inner, name=part)


def _note(what: str, share: float, timing: Timing, work: Work, machine: "roofline.Machine") -> str:
    """A remark on a point, or ValueError if no machine could have done that work in that time."""
    if timing.cached:
        return "cache-resident"
    if not device.ON_GPU or share <= 1.05:  # CPU roofs wander; two reads a write run 2 % above a copy
        return ""
    roof, sheet = machine.wall(work), roofline.datasheet_of(machine.name)
    if roof in ("copy", "read") or (sheet and roof in sheet.peak and work.flops / timing.us * 1e6 > sheet.peak[roof]):
        raise ValueError(f"{what} is at {100 * share:.0f} % of the {roof} roof with data larger than the L2: "
                         "the count of bytes or FLOPs (or the result) is wrong.")
    return "raises the roof"  # better than the library's best product, which had set it


def compare(contestants: dict[str, Callable], args: Sequence, work: Work, *, machine: "roofline.Machine",
            reference: object, shape: str, depth: int = 1, scale: float | Sequence[float] | None = None,
            inner: torch.dtype | None = None, cold: bool = True) -> pd.DataFrame:
    """Check and time contestants on the same arguments; a row for each.

    contestants: name → function of `args`. Names are "numpy" (gets NumPy arrays, timed on the CPU),
        "triton/<step>" for the course's kernels, anything else for a library.
    work: from `utils.cost`; machine: whose roofs; shape: a label such as "4096×4096".
    reference: tensor (or tuple) that every contestant must agree with before its number is kept.
    depth, scale, inner: see `check.tolerance`; scale may be one number for each result.
    Columns: implementation, us, us_p20, us_p80, GB/s, TFLOP/s, roof, % of roof, × best library, note.
    Raises ValueError if a point lies above its roof and is not in the cache: the byte count is wrong.
    """
    contestants = dict(contestants)
    timings: dict[str, Timing] = {}
    if "numpy" in contestants:
        arrays, fn = tuple(map(_to_numpy, args)), contestants.pop("numpy")
        on_cpu = tuple(r.cpu() for r in reference) if isinstance(reference, tuple) else reference.cpu()
        _compared("numpy", fn, arrays, on_cpu, depth, scale, inner)
        timings["numpy"] = time_cpu(fn, *arrays)
    for name, fn in contestants.items():
        _compared(name, fn, args, reference, depth, scale, inner)
    timings |= time_many(contestants, args, cold)
    libraries = [t.us for name, t in timings.items() if is_library(name)]
    rows = []
    for name, timing in timings.items():
        own = name == "numpy" and device.ON_GPU  # another machine's number: not under these roofs
        share = machine.time_floor(work) / timing.us
        note = "on the CPU" if own else _note(f"{name} at {shape}", share, timing, work, machine)
        rows.append({
            "implementation": name, "us": timing.us, "us_p20": timing.us_p20, "us_p80": timing.us_p80,
            "GB/s": work.bytes / timing.us / 1e3, "TFLOP/s": work.flops / timing.us / 1e6,
            "roof": machine.wall(work), "% of roof": None if own else 100 * share,
            "× best library": min(libraries) / timing.us if libraries else None, "note": note})
    table = pd.DataFrame(rows)
    table.attrs = {"work": dataclasses.asdict(work), "shape": shape, "machine": machine.name,
                   "dtype": str(next(a.dtype for a in args if isinstance(a, torch.Tensor))).removeprefix("torch.")}
    return table


def is_library(name: str) -> bool:
    """Whether a contestant's name stands for a library (neither NumPy nor one of the course's kernels)."""
    return name != "numpy" and not name.startswith("triton/")


def show(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows in the columns of the CSV (`record.measured`) as a table to read."""
    table = pd.DataFrame({
        "implementation": rows["implementation"], "shape": rows["shape"], "dtype": rows["dtype"],
        "µs": rows["us"].round(1), "p20": rows["us_p20"].round(1), "p80": rows["us_p80"].round(1),
        "GB/s": (rows["bytes"] / rows["us"] / 1e3).round(0), "TFLOP/s": (rows["flops"] / rows["us"] / 1e6).round(1),
        "roof": rows["roof"], "% of roof": (100 * rows["roof_fraction"]).round(1),
        "× best library": rows["vs_best_library"].round(2)})
    table.columns.name = rows.attrs.get("where", "")  # stands in the corner: which machine
    return table
