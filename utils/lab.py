"""The checks of a lab: what a check cell calls, in your notebook and while grading.

A check cell *declares* a check: how to call the answer, on which inputs, and what the reference is.
In a notebook the answer is run and judged at once. The grader runs the same cell twice: in the
student's process, which only stores the values that came out, and in its own, which draws the same
inputs from the same seed, computes the reference there and compares.
"""

import dataclasses
import json
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from utils import aot, device
from utils import check as checking

COMPILE_FOR = (75, 90)  # a T4 and an H100 or H200


class Rand:
    """Random inputs of a check: rand(3, 5) is a normal tensor, rand.int(1, 9) a number; both from one seed."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, *size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(*size, generator=self.generator).to(dtype).to(device.DEVICE)

    def int(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return int(torch.randint(low, high + 1, (), generator=self.generator))


@dataclasses.dataclass(frozen=True)
class Check:
    """One named check; see `check` for the fields."""

    name: str
    answer: Callable
    cases: Callable[[Rand], list[tuple]]
    reference: Callable
    hint: str = ""
    kernel: str = ""
    depth: int | Callable = 1
    rtol: float | None = None
    dtype: torch.dtype | None = None
    reads: float | None = None

    def collect(self, seed: int) -> dict[str, Any]:
        """Run the answer on every case: {"values": [[tensor, …] a case], "problem": sentence or "", "launched": …}.

        launched: (kernel, args, meta) of each launch of the check's kernel
        """
        values: list[list[torch.Tensor]] = []
        label = f"Check {self.name}"
        try:
            answer = self._recorded() if self.kernel else self.answer
            for i, case in enumerate(self.cases(Rand(seed))):
                label = self._label(i, case)
                result = checking.call(answer, case, name=label, reads=self.reads)
                values.append([_as_tensor(part) for part in (result if isinstance(result, tuple) else (result,))])
            if self.kernel and not answer.launched:
                raise AssertionError(f"{self.kernel} was never launched.")
        except Exception as error:
            unsolved = re.search(r"Exercise \d+\.\d+: [^\n]*", _sentence(error))
            if unsolved:  # the stub's own sentence, from Python or from inside a kernel
                return {"values": [], "problem": unsolved[0]}
            told = str(error) if isinstance(error, AssertionError) else f"the answer raised {_sentence(error)}"
            told = told if told.startswith(label) else f"{label}: {told}"
            return {"values": [], "problem": f"{told} {self.hint}".strip()}
        return {"values": values, "problem": "", "launched": answer.launched if self.kernel else []}

    def _label(self, i: int, case: tuple) -> str:
        return f"Check {self.name}, case {i + 1} ({_describe(case)})"

    def judge(self, seed: int, collected: dict[str, Any]) -> str:
        """"" if the collected values are right, else one sentence; the reference is computed here."""
        if collected["problem"]:
            return collected["problem"]
        cases = self.cases(Rand(seed))
        if len(collected["values"]) != len(cases):
            return f"Check {self.name}: {len(collected['values'])} of {len(cases)} cases were answered."
        for i, (case, got) in enumerate(zip(cases, collected["values"])):
            wide = (a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in case)
            want = self.reference(*wide)
            want = [torch.as_tensor(w, dtype=torch.float64) for w in (want if isinstance(want, tuple) else (want,))]
            label = self._label(i, case)
            if len(got) != len(want):
                return f"{label}: {len(got)} results came back, expected a tuple of {len(want)}. {self.hint}".strip()
            for part, (g, w) in enumerate(zip(got, want)):
                problem = self._compare(g, w, label if len(want) == 1 else f"{label}, result {part + 1}", case)
                if problem:
                    return f"{problem} {self.hint}".strip()
        return ""

    def _compare(self, got: torch.Tensor, want: torch.Tensor, label: str, case: tuple) -> str:
        got, want = got.cpu(), want.cpu()
        if self.rtol is not None or not (got.is_floating_point() or got.is_complex()):  # counted or derived numbers
            if got.shape != want.shape:
                return f"{label}: got {_short(got)} of shape {list(got.shape)}, expected shape {list(want.shape)}."
            right = torch.isclose(got.double(), want, rtol=self.rtol or 0.0, atol=0)
            return "" if right.all() else f"{label}: {_first(got, want, ~right)}."
        problem = self._coarse(got.dtype, case)
        if problem:
            return f"{label}: {problem}"
        try:
            depth = self.depth(*case) if callable(self.depth) else self.depth
            checking.agree(got, want, depth=depth, name=label)
        except AssertionError as error:
            if got.shape == want.shape and want.numel() == 1:
                return f"{label}: {_first(got, want, torch.ones_like(want, dtype=torch.bool))}."
            if not self.kernel and got.shape == want.shape and (odd := got.isnan() & ~want.isnan()).any():
                return f"{label}: {int(odd.sum())} elements are NaN, the first at {odd.nonzero()[0].tolist()}."
            return str(error)
        return ""

    def _coarse(self, dtype: torch.dtype, case: tuple) -> str:
        """A sentence if a result has so coarse a dtype that its own tolerance would let errors pass."""
        if not dtype.is_floating_point:
            return "" if not dtype.is_complex else f"the result is {dtype}, expected real numbers."
        inputs = [torch.as_tensor(a).dtype for a in case if isinstance(a, (torch.Tensor, np.ndarray))]
        floats = [self.dtype] if self.dtype else [torch.float32, *(d for d in inputs if d.is_floating_point)]
        coarsest = max(floats, key=lambda d: torch.finfo(d).eps)
        if not self.kernel and torch.finfo(dtype).eps > torch.finfo(coarsest).eps:
            return f"the result is {dtype}, coarser than {coarsest}: compute and return it in that precision."
        return ""

    def launch(self, seed: int, names: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """(args, meta) of the check's first launch of its kernel, found without running any kernel.

        names: constants of the answer that the check may use
        """
        launched: list = []
        before = self.answer.__globals__.copy()
        self.answer.__globals__.update(names, **{self.kernel: _Noted(None, launched)})
        try:
            checking.call(self.answer, self.cases(Rand(seed))[0], name=self.name)
        finally:
            self.answer.__globals__.clear()
            self.answer.__globals__.update(before)
        return launched[0][1:]

    def _recorded(self) -> Callable:
        """The answer, with the kernel's launches noted on the way."""
        from triton.runtime.interpreter import InterpretedFunction
        from triton.runtime.jit import JITFunction

        names = self.answer.__globals__
        kernel = names.get(self.kernel)
        if not isinstance(kernel, (JITFunction, InterpretedFunction)):
            raise AssertionError(f"{self.kernel} must be a function decorated with @triton.jit, "
                                 f"not {'missing' if kernel is None else type(kernel).__name__}.")

        def answer(*args):
            names[self.kernel] = _Noted(kernel, answer.launched)
            try:
                return self.answer(*args)
            finally:
                names[self.kernel] = kernel

        answer.launched = []
        return answer

    def compile_problem(self, rows: list[aot.Compiled]) -> str:
        """"" if the kernel compiled and fits everywhere, else one sentence."""
        for made in rows:
            if made.error:
                return f"Check {self.name}: {self.kernel} runs here but does not compile for sm_{made.cc}: {made.error}"
            if not made.fits:
                return (f"Check {self.name}: {self.kernel} needs {made.shared // 1024} KiB of shared memory, "
                        f"more than sm_{made.cc} has.")
        return ""


class _Noted:
    """A kernel that notes what it is launched with."""

    def __init__(self, kernel: Any, launched: list) -> None:
        self.kernel, self.launched = kernel, launched

    def __getitem__(self, grid):
        def launch(*args, **meta):
            self.launched.append((self.kernel, args, meta))
            return self.kernel[grid](*args, **meta) if self.kernel is not None else None
        return launch


declared: list[Check] | None = None  # a list while the grader reads the checks in its own process


def check(name: str, answer: Callable, *, cases: Callable[[Rand], list[tuple]], reference: Callable, hint: str = "",
          kernel: str = "", depth: int | Callable = 1, rtol: float | None = None,
          dtype: torch.dtype | None = None, reads: float | None = None) -> None:
    """Run an answer on fresh random inputs and compare it with a float64 reference.

    name: such as "1.3"; answer(*case) → number, array, tensor or a tuple of them
    cases(rand) → a list of argument tuples, drawn from `rand` (see `Rand`)
    reference(*case) → the same structure, on float64 tensors; hint: a sentence added to a failure
    kernel: name of a @triton.jit function that `answer` launches: it must also compile for a T4 and an H100
    depth: terms a result is summed from; rtol: for counted numbers, compared to this relative tolerance
    dtype: the coarsest float dtype a result may have (default: fp32, or that of the coarsest input)
    reads: how often kernels may load an element of the first argument, on average (seen by the interpreter only)
    Prints one line if all is right; raises AssertionError with one sentence if not.
    """
    this = Check(name, answer, cases, reference, hint, kernel, depth, rtol, dtype, reads)
    if declared is not None:
        declared.append(this)
        return
    seed = int(os.environ.get("COURSE_SEED", "0"))
    folder = os.environ.get("COURSE_ANSWERS")
    collected = this.collect(seed)
    if folder:
        store(Path(folder), name, collected)
        return
    problem = this.judge(seed, collected)
    if kernel and not problem:  # right values first: compiling takes some seconds
        made, args, meta = collected["launched"][0]
        problem = this.compile_problem(aot.compile_launch(aot.source_of(made), kernel, args, meta, COMPILE_FOR))
    if problem:
        if problem.startswith("Exercise "):  # the stub's own sentence
            raise NotImplementedError(problem)
        raise AssertionError(problem)
    print(f"Check {name} passed.")


def store(folder: Path, name: str, collected: dict[str, Any]) -> None:
    """Write what a check collected as JSON and one .npy an array (no pickle), for another process to read."""
    index = {"name": name, "problem": collected["problem"], "cases": []}
    for i, case in enumerate(collected["values"]):
        row = []
        for j, part in enumerate(case):
            dtype = str(part.dtype).removeprefix("torch.")
            wide = part.detach().cpu()
            small = wide.is_floating_point() and wide.dtype not in (torch.float16, torch.float32, torch.float64)
            array = wide.float().numpy() if small else wide.numpy()  # NumPy knows no bf16 and no fp8
            np.save(folder / f"{name}-{i}-{j}.npy", array, allow_pickle=False)
            row.append(dtype)
        index["cases"].append(row)
    (folder / f"{name}.json").write_text(json.dumps(index))


def load(folder: Path, name: str) -> dict[str, Any]:
    """Read what `store` wrote; OSError or ValueError if it is missing or broken."""
    for path in folder.glob(f"{name}*"):
        if path.is_symlink() or not path.is_file():
            raise ValueError(f"{path.name} is not a plain file")
    index = json.loads((folder / f"{name}.json").read_text())
    values = [[_load(folder / f"{name}-{i}-{j}.npy", dtype) for j, dtype in enumerate(row)]
              for i, row in enumerate(index["cases"])]
    return {"values": values, "problem": str(index["problem"])}


def _load(path: Path, dtype: str) -> torch.Tensor:
    with path.open("rb") as file:  # a header must not claim more than the file holds
        np.lib.format.read_magic(file)
        shape, _, kind = np.lib.format.read_array_header_1_0(file)
        if file.tell() + math.prod(shape) * kind.itemsize != path.stat().st_size:
            raise ValueError(f"{path.name} does not hold what its header says")
    to = getattr(torch, dtype)
    if not isinstance(to, torch.dtype):
        raise ValueError(f"{dtype} is not a dtype")
    return torch.from_numpy(np.load(path, allow_pickle=False)).to(to)


def _as_tensor(value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value
    try:
        return torch.as_tensor(np.asarray(value, dtype=None if isinstance(value, np.ndarray) else np.float64))
    except (TypeError, ValueError):
        kind = type(value).__name__
        raise AssertionError(f"the answer is {kind}; expected a number, an array or a tensor.") from None


def _describe(case: tuple) -> str:
    return ", ".join(f"{'×'.join(map(str, a.shape)) or 'scalar'} {str(a.dtype).removeprefix('torch.')}"
                     if isinstance(a, (torch.Tensor, np.ndarray)) else str(a).removeprefix("torch.") for a in case)


def _short(x: torch.Tensor) -> str:
    values = x.flatten().tolist()[:4]
    text = ", ".join(f"{v:.6g}" for v in values)
    return text if x.ndim == 0 else f"[{text}{', …' if x.numel() > 4 else ''}]"


def _first(got: torch.Tensor, want: torch.Tensor, wrong: torch.Tensor) -> str:
    """The first wrong element, with as many digits as show the difference."""
    index = wrong.nonzero()[0].tolist()
    is_, should = got[tuple(index)].item(), want[tuple(index)].item()
    digits = next((d for d in (6, 9, 12) if f"{is_:.{d}g}" != f"{should:.{d}g}"), 17)
    text = f"got {is_:.{digits}g}, expected {should:.{digits}g}"
    return f"element {index} and {int(wrong.sum()) - 1} more are wrong: {text}" if got.numel() > 1 else text


def _sentence(error: BaseException) -> str:
    """A compiler's or the interpreter's error, down to the line that says what is wrong."""
    while error.__cause__ is not None:
        error = error.__cause__
    try:
        text = str(error)
    except Exception:  # an exception of the answer's own that cannot be shown
        text = ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"
