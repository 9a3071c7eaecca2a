"""One exercise, graded: the notebook rebuilt around the answer, run in a cage, its values judged here."""

import ast
import contextlib
import dataclasses
import json
import os
import re
import secrets
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import nbformat
import torch
from nbformat import v4

from utils import aot
from utils import lab as checks
from utils.staff import grade_cage
from utils.staff.grade_kernel import Broken, Refused, cleaned, constants, kernel_only
from utils.staff.grade_lab import Answer, Exercise, Lab
from utils.staff.paths import ROOT, Problem

VALUES = 512 * 2**20  # bytes of values that one exercise may return
_WHY = {"timeout": ("timeout", "it did not end within {limit} seconds."),
        "crashed": ("crashed", "the process ended before the check did (exit, signal or out of memory)."),
        "memory": ("crashed", "it used more than {memory} MiB of memory."),
        "processes": ("crashed", f"it started more than {grade_cage.PROCESSES} processes."),
        "output": ("crashed", f"it printed more than {grade_cage.OUTPUT >> 20} million characters.")}


@dataclasses.dataclass
class Result:
    """How one check went; only the state "passed" earns its points."""

    state: str
    message: str = ""


class Cage:
    """A warm process (see grade_cage) and the folder that its jobs use, one at a time."""

    _lock = threading.Lock()
    _all: dict[int, "Cage"] = {}

    def __init__(self, mode: str, home: Path, slot: Path, isolate: bool = True) -> None:
        self.mode, self.home, self.slot = mode, home, slot
        self.command = [sys.executable, str(home / "grade_cage.py"), mode, *([] if isolate else ["--bare"])]
        self.process, self.isolated, self.busy = None, None, threading.Lock()

    def start(self) -> None:
        """Start the process if it does not run; `ready` waits until it has imported everything."""
        if self.process is not None:
            return
        env = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
               if name in os.environ}
        env |= {"HOME": str(self.home), "MPLCONFIGDIR": str(self.home), "MPLBACKEND": "Agg", "PYTHONHASHSEED": "0",
                "CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": str(int(self.mode != "compile")),
                "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                **{f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS")}}
        self.env, self.since = env, time.time() - 1
        with Cage._lock:
            pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
            self.process = subprocess.Popen(self.command, env=env, cwd=self.home, start_new_session=True, **pipes)
            Cage._all[self.process.pid] = self
        self.isolated = None

    def ready(self) -> None:
        """Wait until the process can take a job; Problem if it cannot be started."""
        self.start()
        if self.isolated is None:
            self.isolated = self._line(180)
        if self.isolated is None:
            self.process.kill()
            said = (self.process.stderr.read().decode().strip().splitlines() or ["it was silent"])[-1]
            self.close()
            raise Problem(f"the grader's {self.mode} process did not start ({said}): run make doctor.")

    def _line(self, seconds: float) -> Any:
        """The next line of the process as JSON, or None if it is dead or silent for so long."""
        end, text = time.monotonic() + seconds, b""
        while not text.endswith(b"\n"):
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))
            part = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            if not part:
                return None
            text += part
        return json.loads(text)

    def do(self, job: dict[str, Any]) -> dict[str, Any]:
        """Run one job; a cage that dies of it is cleared away and replaced at the next job."""
        self.ready()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(job).encode() + b"\n")
            self.process.stdin.flush()
        reply = self._line(job["limit"] + 9)
        if reply is None:
            self.close()
            with Cage._lock:  # what it left has become ours
                grade_cage.end_descendants(spare=tuple(Cage._all), since=self.since)
        return reply or {"why": "crashed", "said": [], "seconds": 0}

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            with Cage._lock:
                Cage._all.pop(self.process.pid, None)
            self.process = None


class Grader:
    """Cages and settings of one run of the grader; use it as a context."""

    def __init__(self, lab: Lab, seed: int, limit: int, jobs: int, hide: list[Path], *,
                 isolate: bool = True, memory: int = grade_cage.MEMORY) -> None:
        self.lab, self.seed, self.limit, self.hide, self.memory = lab, seed, limit, hide, memory
        self.folder = Path(tempfile.mkdtemp(prefix="grade-"))
        home = self.folder / "warm"
        _copy_course(home)
        shutil.copyfile(grade_cage.__file__, home / "grade_cage.py")
        with contextlib.suppress(OSError, AttributeError):
            grade_cage._libc("prctl", grade_cage._SUBREAPER, 1, 0, 0, 0)
        self.slots = [self.folder / f"slot{i}" for i in range(jobs + 1)]
        for slot in self.slots:
            slot.mkdir()
        self.cages = [Cage("notebook", home, slot, isolate) for slot in self.slots[:-1]]
        self.compiler = Cage("compile", home, self.slots[-1], isolate)
        self.compiled: dict[tuple[str, str], Result] = {}

    def __enter__(self) -> "Grader":
        return self

    def start(self) -> None:
        """Start all processes at once, without waiting for them."""
        kernels = any(check.kernel for exercise in self.lab.exercises.values() for check in exercise.checks.values())
        for cage in (*self.cages, *([self.compiler] if kernels else [])):
            cage.start()

    def __exit__(self, *_: object) -> None:
        for cage in (*self.cages, self.compiler):
            cage.close()
        _remove(self.folder)

    def grade(self, exercise: Exercise, answer: Answer, cage: Cage) -> tuple[dict[str, Result], float]:
        """The result of each check of an exercise, and the seconds it took."""
        if answer.state:
            return {name: Result(answer.state, answer.message) for name in exercise.checks}, 0.0
        results, seconds = {}, 0.0
        for kernel in (False, True):  # kernels run apart, from the kernel's text alone
            names = [name for name, check in exercise.checks.items() if bool(check.kernel) == kernel]
            if not names:
                continue
            try:
                text = cleaned(answer.text)
                text = kernel_only(text) if kernel else text
                group, took = self._run(exercise, names, text, cage)
            except (Refused, Broken) as error:
                state = "refused" if isinstance(error, Refused) else "error"
                group, took = {name: Result(state, str(error)) for name in names}, 0.0
            results.update(group)
            seconds += took
        return {name: results[name] for name in exercise.checks}, seconds

    def _run(self, exercise: Exercise, names: list[str], text: str, cage: Cage) -> tuple[dict[str, Result], float]:
        with cage.busy:
            job = self._job(cage, "notebook", self.limit)
            nbformat.write(_notebook(self.lab, exercise, names, text), job["book"])
            reply = cage.do(job)
            results = {}
            cells = [line for line in reply["said"] if "outcome" in line]
            why = reply["why"] or next((line["why"] for line in reply["said"] if "why" in line), "")
            first = len(self.lab.setup)
            broken = next((c for c in cells[:first] if c["outcome"] != "passed"), None)
            own = cells[first] if len(cells) > first else None
            for i, name in enumerate(names):
                ran, ended = [*cells[first + 1 + 2 * i:first + 3 + 2 * i], None, None][:2]
                result = Result("not-run")
                if ended and ended["outcome"] == "passed":
                    result = self._judge(exercise.checks[name], Path(job["answers"]))
                if result.state == "passed":
                    pass
                elif broken:
                    result = Result("not-run", f"the setup cell raised {broken['message']}")
                elif own and own["outcome"] not in ("passed", "RuntimeError"):
                    result = Result("error", f"the answer cell raised {own['message']}")
                elif result.message:
                    pass
                elif ran and ran["outcome"] not in ("passed", "RuntimeError"):
                    result = Result("error", f"the check cell raised {ran['message']}")
                elif why or len(cells) < first + 1 + 2 * len(names):
                    state, message = _WHY[why or "crashed"]
                    message = message.format(limit=self.limit, memory=self.memory >> 20)
                    result = Result(state, f"Check {name}: {message}")
                else:
                    result = Result("not-run", f"Check {name} did not run to its end.")
                result.message = _tidy(result.message, self.folder)
                results[name] = result
                if result.state == "passed" and exercise.checks[name].kernel:
                    results[name] = self._compile(exercise.checks[name], text)
        return results, reply["seconds"]

    def _job(self, cage: Cage, action: str, limit: int) -> dict[str, Any]:
        """A job in a fresh folder with its own home, caches and copy of the course."""
        folder = cage.slot / "job"
        _remove(folder)
        _copy_course(folder / "course")
        places = {name: str(folder / name) for name in ("home", "cache", "tmp", "answers", "run")}
        for place in (*places.values(), folder / "course" / "work"):
            Path(place).mkdir()
        cage.ready()
        env = cage.env | {"HOME": places["home"], "MPLCONFIGDIR": places["home"], "TMPDIR": places["tmp"],
                          "TRITON_CACHE_DIR": places["cache"], "IPYTHONDIR": places["home"],
                          "JUPYTER_RUNTIME_DIR": places["run"], "JUPYTER_CONFIG_DIR": places["home"],
                          "COURSE_ANSWERS": places["answers"], "COURSE_SEED": str(self.seed)}
        hide = [str(p) for p in (*self.hide, *(s for s in self.slots if s != cage.slot), cage.home)]
        return {"action": action, "limit": limit, "memory": self.memory, "hide": hide, "env": env,
                "course": str(folder / "course"), "cwd": str(folder / "course" / "work"),
                "book": str(folder / "course" / "work" / "lab.ipynb"), "answers": places["answers"],
                "answer": str(folder / "answer.json"), "log": str(folder / "log")}

    def _judge(self, check: checks.Check, folder: Path) -> Result:
        """Compare the values that a check stored with the reference, here."""
        try:
            if sum(p.lstat().st_size for p in folder.iterdir()) > VALUES:
                return Result("failed", f"Check {check.name}: more than {VALUES >> 20} MiB of values came back.")
            collected = checks.load(folder, check.name)
            if collected["problem"]:
                state = "error" if "the answer raised" in collected["problem"] else "failed"
                return Result(state, collected["problem"])
            problem = check.judge(self.seed, collected)
        except Exception as error:
            return Result("failed", f"Check {check.name}: its values could not be read ({type(error).__name__}).")
        return Result("failed", problem) if problem else Result("passed")

    def _compile(self, check: checks.Check, text: str) -> Result:
        """Compile a kernel from the answer's text, with the launch that the check itself makes."""
        with self.compiler.busy:
            key = (check.name, text)
            if key not in self.compiled:
                args, meta = check.launch(self.seed, constants(text))
                job = self._job(self.compiler, "compile", 120)
                source = Path(job["course"]) / "source.py"
                source.write_text(text)
                job["launch"] = {"path": str(source), "kernel": check.kernel, "args": [_described(a) for a in args],
                                 "meta": meta, "ccs": list(checks.COMPILE_FOR)}
                reply = self.compiler.do(job)
                rows = reply["said"][0] if reply["said"] else None
                if rows is None:
                    problem = f"Check {check.name}: the compiler ended early ({reply['why'] or 'crashed'})."
                    self.compiled[key] = Result("crashed", problem)
                else:
                    problem = check.compile_problem([aot.Compiled(**row) for row in rows])
                    problem = _tidy(f"Check {check.name}: {problem}", self.folder) if problem else ""
                    self.compiled[key] = Result("failed", problem) if problem else Result("passed")
            return self.compiled[key]


def _described(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    dtype = str(value.dtype).removeprefix("torch.")
    return {"dtype": dtype, "shape": list(value.shape), "stride": list(value.stride())}


def _notebook(lab: Lab, exercise: Exercise, names: list[str], text: str) -> nbformat.NotebookNode:
    """The released setup and checks around an answer; behind each check a cell that shows it came to its end."""
    cells = [v4.new_code_cell(source) for source in (*lab.setup, text)]
    for name in names:
        token = secrets.token_hex(16)
        cells.append(v4.new_code_cell(f"{without_reference(exercise.sources[name])}\n_ended = {token!r}"))
        shown = v4.new_output("stream", name="stdout", text=token + "\n")
        cells.append(v4.new_code_cell("print(_ended)", execution_count=1, outputs=[shown],
                                      metadata={"tags": ["nbval-check-output"]}))
    return v4.new_notebook(cells=cells)


def without_reference(source: str) -> str:
    """A check cell without its reference, nor the functions that only the reference needs."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "lab.check":
            for keyword in node.keywords:
                if keyword.arg == "reference":
                    keyword.value = ast.Constant(None)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    needed, todo = set(), [node for node in tree.body if node not in functions.values()]
    while todo:
        for node in ast.walk(todo.pop()):
            if isinstance(node, ast.Name) and node.id in functions and node.id not in needed:
                needed.add(node.id)
                todo.append(functions[node.id])
    tree.body = [node for node in tree.body if node not in functions.values() or node.name in needed]
    return ast.unparse(tree)


def _tidy(message: str, folder: Path) -> str:
    """One line without what differs from run to run."""
    message = re.sub(rf"{re.escape(str(folder))}[\w/.-]*", "(the grader's folder)", message)
    message = message.replace(str(ROOT), "(the course)")
    message = re.sub(r"0x[0-9a-fA-F]{5,}", "0x…", message)
    return " ".join(message.split())[:600]


def _copy_course(target: Path) -> None:
    """The learner's part of the course: utils without staff."""
    shutil.copytree(ROOT / "utils", target / "utils", ignore=shutil.ignore_patterns("staff", "__pycache__"))


def _remove(folder: Path) -> None:
    """Delete a folder, also where its rights were taken away."""
    for path, names, _ in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                if not os.path.islink(os.path.join(path, name)):
                    os.chmod(os.path.join(path, name), 0o700)
    shutil.rmtree(folder, ignore_errors=True)
