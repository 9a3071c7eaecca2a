"""A small solved lab for the grader's tests, and ways to answer it."""

import json
from pathlib import Path

import nbformat
from nbformat import v4

from utils.staff.labs import lab_of
from utils.staff.links import setup_cell

IMPORTS = "import numpy as np\nimport torch\nimport triton\nimport triton.language as tl\n\nfrom utils import lab"

COUNT = '''# EXERCISE 1.1
def traffic(n):
    """(FLOPs, bytes) of an fp32 AXPY of n elements."""
    ### BEGIN SOLUTION
    return 2 * n, 12 * n
    ### END SOLUTION'''

COUNT_CHECK = '''# CHECK 1.1
def counted(n):
    return 2 * n, 3 * 4 * n

lab.check("1.1", lambda n: traffic(n), cases=lambda rand: [(rand.int(5, 500),) for _ in range(3)],
          reference=counted, rtol=1e-9)'''

ROWS = '''# EXERCISE 1.2
def softmax(x):
    """Stable softmax of each row of x [rows, columns]."""
    ### BEGIN SOLUTION
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
    ### END SOLUTION'''

ROWS_CHECK = '''# CHECK 1.2
def inputs(rand):
    return [(rand(3, 5),), (rand(2, 17) * 4,)]

lab.check("1.2", lambda x: softmax(x.numpy()), cases=inputs, reference=lambda x: torch.softmax(x, -1))'''

LARGE_CHECK = '''# CHECK 1.2b
lab.check("1.2b", lambda x: softmax(x.numpy()), cases=lambda rand: [(rand(4, 9) * 1000,)],
          reference=lambda x: torch.softmax(x, -1), hint="Subtract the largest element first.")'''

KERNEL = '''# EXERCISE 1.3
@triton.jit
def axpy(x_ptr, y_ptr, out_ptr, a, n, BLOCK: tl.constexpr):
    ### BEGIN SOLUTION
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    x = tl.load(x_ptr + i, mask=inside)
    y = tl.load(y_ptr + i, mask=inside)
    tl.store(out_ptr + i, a * x + y, mask=inside)
    ### END SOLUTION'''

KERNEL_CHECK = '''# CHECK 1.3
def launch(x, y):
    out = torch.empty_like(x)
    axpy[(triton.cdiv(x.numel(), 64),)](x, y, out, 0.75, x.numel(), BLOCK=64)
    return out

lab.check("1.3", launch, cases=lambda rand: [(rand(n), rand(n)) for n in (64, 100)],
          reference=lambda x, y: 0.75 * x + y, kernel="axpy")'''

STUBS = {"1.1": 'raise NotImplementedError("Exercise 1.1: count each read and each write.")',
         "1.2": 'raise NotImplementedError("Exercise 1.2: subtract, exponentiate, divide.")',
         "1.3": 'tl.static_assert(False, "Exercise 1.3: load, compute, store under one mask.")'}


def _answer(source: str) -> nbformat.NotebookNode:
    name = source.split()[2]
    meta = {"grade": False, "solution": True, "locked": False, "task": False, "schema_version": 3,
            "grade_id": f"exercise-{name.replace('.', '-')}"}
    course = {"stub": STUBS[name]}
    return v4.new_code_cell(source, id=f"answer-{name[-1]}", metadata={"nbgrader": meta, "course": course})


def _check(source: str, points: int) -> nbformat.NotebookNode:
    name = source.split()[2]
    meta = {"grade": True, "solution": False, "locked": True, "task": False, "schema_version": 3, "points": points,
            "grade_id": f"check-{name.replace('.', '-')}"}
    return v4.new_code_cell(source, id=f"check-{name.replace('.', '-')}", metadata={"nbgrader": meta})


def solution() -> nbformat.NotebookNode:
    """The fixture, solved: a counting, a NumPy and a kernel exercise, 20 points."""
    cells = [v4.new_markdown_cell("# Lab: a fixture\nUnsolved cells fail on purpose.", id="title"),
             v4.new_code_cell(setup_cell(), id="setup"),
             v4.new_code_cell(IMPORTS, id="imports", metadata={"tags": ["setup"]}),
             v4.new_markdown_cell("## Exercise 1.1", id="text-1"), _answer(COUNT), _check(COUNT_CHECK, 4),
             v4.new_markdown_cell("## Exercise 1.2", id="text-2"), _answer(ROWS), _check(ROWS_CHECK, 5),
             _check(LARGE_CHECK, 3),
             v4.new_markdown_cell("## Exercise 1.3", id="text-3"), _answer(KERNEL), _check(KERNEL_CHECK, 8)]
    return v4.new_notebook(cells=cells)


def released(path: Path) -> Path:
    """The fixture's lab, written to `path`."""
    nbformat.write(lab_of(solution()), path)
    return path


def answered(path: Path, answers: dict[str, str] | None = None, only: str = "1.1 1.2 1.3") -> Path:
    """A submission: the solution of `only` these exercises with some answers replaced (given without first line)."""
    book = solution()
    gone = {f"# EXERCISE {name}" for name in STUBS if name not in only.split()}
    book.cells = [cell for cell in book.cells if cell.source.split("\n")[0] not in gone]
    for cell in book.cells:
        name = cell.source.split()[2] if cell.source.startswith("# EXERCISE") else ""
        if name in (answers or {}):
            cell.source = f"# EXERCISE {name}\n{answers[name]}"
        cell.metadata.pop("course", None)
    nbformat.write(book, path)
    return path


def plain(book: nbformat.NotebookNode) -> dict:
    """A notebook as JSON data, to be bent as other front ends do."""
    return json.loads(nbformat.writes(book))
