"""Labs from solutions: the answers are taken out, stubs that name the exercise put in their place."""

import re

import nbformat
from nbgrader.preprocessors import ClearSolutions

from utils.staff.paths import Problem


class Blank(ClearSolutions):
    """nbgrader's ClearSolutions with a stub of its own for each cell, from the cell's metadata.

    A stub in Python raises NotImplementedError, one inside a kernel is a tl.static_assert: both say
    "Exercise n.m: hint", in the interpreter and in the compiler.
    """

    def preprocess_cell(self, cell, resources, cell_index):
        stub = cell.metadata.get("course", {}).get("stub")
        if cell.metadata.get("nbgrader", {}).get("solution"):
            if not stub or "Exercise " not in stub:
                raise Problem(f"answer cell {cell_index} has no stub that names its exercise in metadata.course.stub.")
            self.code_stub = {"python": stub}
        cell, resources = super().preprocess_cell(cell, resources, cell_index)
        cell.metadata.pop("course", None)
        return cell, resources


ANSWER = re.compile(r"# EXERCISE (\d+\.\d+)\s*$", re.M)
CHECK = re.compile(r"# CHECK (\d+\.\d+[a-z]?) \((\d+) points?\)")


def mark(solution: nbformat.NotebookNode) -> None:
    """Write nbgrader's metadata (schema version 3) from the first lines of answer and check cells, in place."""
    for cell in solution.cells:
        answer, check = ANSWER.match(cell.source), CHECK.match(cell.source)
        if cell.cell_type != "code" or not (answer or check):
            continue
        number = (answer or check)[1].replace(".", "-")
        cell.metadata["nbgrader"] = {
            "schema_version": 3, "task": False, "grade": bool(check), "solution": bool(answer), "locked": bool(check),
            "grade_id": f"{'exercise' if answer else 'check'}-{number}", **({"points": int(check[2])} if check else {})}


def lab_of(solution: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The lab of a solved notebook: same cells, no answers."""
    book = nbformat.from_dict(solution)
    book, _ = Blank().preprocess(book, {})
    for cell in book.cells:
        if "BEGIN SOLUTION" in cell.source or "END SOLUTION" in cell.source:
            raise Problem("a solution marker is left in the lab.")
    return book
