"""A released lab, and what a submission answers to it, however another front end saved it."""

import contextlib
import dataclasses
import hashlib
import io
import json
import linecache
import re
from pathlib import Path
from typing import Any

from utils import lab as checking
from utils.staff.grade_kernel import parsed, same
from utils.staff.paths import ROOT, Problem, read

SIZE = 50_000_000  # bytes of a submission
_MARKER = re.compile(r"^[ \t]*#[ \t]*(EXERCISE|CHECK)[ \t]+(\d+\.\d+)([a-z]?)[ \t]*(?::|\(.*\))?[ \t]*$", re.MULTILINE)


class Unreadable(Exception):
    """Why a file cannot be graded, in one sentence."""


# --- the released lab ----------------------------------------------------------------------------

@dataclasses.dataclass
class Exercise:
    """One exercise as it was released: the stub, and the checks with their cells and points."""

    name: str
    stub: str
    grade_id: str
    cell_id: str
    sources: dict[str, str] = dataclasses.field(default_factory=dict)  # check cells by name
    points: dict[str, float] = dataclasses.field(default_factory=dict)
    checks: dict[str, checking.Check] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Lab:
    """A released lab: `setup` cells, then exercises; `known` are the texts of all its cells."""

    path: Path
    setup: list[str]
    exercises: dict[str, Exercise]
    known: set[str]

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.path.read_bytes()).hexdigest()[:16]

    @property
    def total(self) -> float:
        return sum(sum(e.points.values()) for e in self.exercises.values())


def load(path: Path) -> Lab:
    """Read a released lab and the declarations of its checks; Problem if the lab itself is not right."""
    book = read(path)
    lab = Lab(path, [], {}, {_plain(cell.source) for cell in book.cells})
    for cell in book.cells:
        if cell.cell_type != "code":
            continue
        marker = _MARKER.match(cell.source)
        meta = cell.metadata.get("nbgrader", {})
        if marker is None:
            if cell.source.startswith("# Setup:") or "setup" in cell.metadata.get("tags", []):
                lab.setup.append(cell.source)
        elif marker[1] == "EXERCISE":
            if marker[2] in lab.exercises:
                raise Problem(f"{path.name} has two answer cells {marker[2]}: number them apart.")
            lab.exercises[marker[2]] = Exercise(marker[2], cell.source, meta.get("grade_id", ""), cell.get("id", ""))
        else:
            exercise, name = lab.exercises.get(marker[2]), marker[2] + marker[3]
            if exercise is None or name in exercise.sources or not meta.get("points"):
                raise Problem(f"{path.name}: check {name} needs an answer cell before it, its own name and points.")
            exercise.sources[name], exercise.points[name] = cell.source, float(meta["points"])
    if not lab.exercises or not all(e.sources for e in lab.exercises.values()):
        raise Problem(f"{path.name} is no lab: each exercise needs an answer cell and a check cell.")
    _declare(lab)
    return lab


def _declare(lab: Lab) -> None:
    """Run setup and check cells here, without any answer, to get the checks they declare."""
    common: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.chdir(ROOT), contextlib.redirect_stdout(io.StringIO()):
        for i, source in enumerate(lab.setup):
            _execute(source, f"<{lab.path.name} setup {i}>", common)
        for exercise in lab.exercises.values():
            for name, source in exercise.sources.items():
                checking.declared = []
                try:
                    _execute(source, f"<{lab.path.name} check {name}>", dict(common))
                    names = [check.name for check in checking.declared]
                    if names != [name]:
                        raise Problem(f"{lab.path.name}: cell CHECK {name} declares {names or 'no check'}, not {name}.")
                    exercise.checks[name] = checking.declared[0]
                except (Exception, SystemExit) as error:
                    if isinstance(error, Problem):
                        raise
                    raise Problem(f"{lab.path.name}: check cell {name} cannot be read without an answer "
                                  f"({type(error).__name__}: {error}).") from None
                finally:
                    checking.declared = None


def _execute(source: str, name: str, names: dict[str, Any]) -> None:
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)  # @triton.jit reads its source
    exec(compile(source, name, "exec"), names)


# --- a submission --------------------------------------------------------------------------------

@dataclasses.dataclass
class Answer:
    """The text that answers an exercise, or the state that says why there is none."""

    text: str = ""
    state: str = ""
    message: str = ""


def submission(path: Path) -> list[dict[str, Any]]:
    """The cells of a submitted file: [{"type", "text", "id", "grade_id"}]; Unreadable says what is wrong."""
    if path.is_symlink() or not path.is_file():
        raise Unreadable("it is not a plain file.")
    if path.stat().st_size > SIZE:
        raise Unreadable(f"it is larger than {SIZE // 10**6} MB: clear its outputs.")
    raw = path.read_bytes()
    try:
        wide = raw[:2] in (b"\xff\xfe", b"\xfe\xff")
        book = json.loads(raw.decode("utf-16" if wide else "utf-8-sig"))
        cells = book["cells"] if "cells" in book else [c for sheet in book["worksheets"] for c in sheet["cells"]]
        return [_cell(cell) for cell in cells]
    except UnicodeDecodeError:
        raise Unreadable("it is not a text in UTF-8.") from None
    except json.JSONDecodeError as error:
        what = "it is empty." if not raw.strip() else f"it is no notebook: not JSON from line {error.lineno} on."
        raise Unreadable(what) from None
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError):
        raise Unreadable("it is no notebook: it has no list of cells.") from None


def _cell(cell: dict) -> dict[str, Any]:
    source = cell.get("source", cell.get("input", ""))
    text = "".join(source) if isinstance(source, list) else source
    if not isinstance(text, str):
        raise TypeError
    meta = cell.get("metadata") or {}
    nbgrader = meta.get("nbgrader") if isinstance(meta, dict) else None
    return {"type": str(cell.get("cell_type")), "text": text.replace("\r\n", "\n").replace("\r", "\n"),
            "id": cell.get("id"), "grade_id": nbgrader.get("grade_id") if isinstance(nbgrader, dict) else None}


def answers(lab: Lab, cells: list[dict[str, Any]]) -> tuple[dict[str, Answer], list[str]]:
    """The answer of each exercise and notes on what was found otherwise than released."""
    pieces, notes = [], []  # (index of the cell, kind, number, text)
    for i, cell in enumerate(cells):
        pieces += [(i, *piece) for piece in _pieces(cell["text"])]
    for name, source in ((n, s) for e in lab.exercises.values() for n, s in e.sources.items()):
        found = [text for _, kind, number, text in pieces if kind == "CHECK" and number == name]
        if not found or any(_plain(text) != _plain(source) for text in found):
            notes.append(f"check {name} was {'edited' if found else 'deleted'}; the released one is used")
    found = {name: _answer(exercise, lab, cells, pieces, notes) for name, exercise in lab.exercises.items()}
    if all(answer.state == "missing" for answer in found.values()):
        raise Unreadable(f"none of the answer cells of {lab.path.stem} is in it: is it another notebook?")
    return found, notes


def _pieces(text: str) -> list[tuple[str, str, str]]:
    """A cell's text cut at its EXERCISE and CHECK lines (cells may have been merged)."""
    marks = list(_MARKER.finditer(text))
    starts = [0, *(mark.start() for mark in marks[1:])]  # what stands above the first line belongs to it
    return [(mark[1], mark[2] + (mark[3] if mark[1] == "CHECK" else ""), text[start:end])
            for mark, start, end in zip(marks, starts, [*starts[1:], len(text)])]


def _answer(exercise: Exercise, lab: Lab, cells: list, pieces: list, notes: list[str]) -> Answer:
    name = exercise.name
    found = [(i, text) for i, kind, number, text in pieces if kind == "EXERCISE" and number == name]
    marked = {piece[0] for piece in pieces}
    for key in ("grade_id", "id"):
        wanted = exercise.grade_id if key == "grade_id" else exercise.cell_id
        if not found and wanted:
            found = [(i, cell["text"]) for i, cell in enumerate(cells) if cell[key] == wanted and i not in marked]
            if found:
                how = "cell id" if key == "id" else "metadata"
                notes.append(f"answer {name} lost its first line and was found by its {how}")
    code = [(i, text) for i, text in found if cells[i]["type"] == "code"]
    if found and not code:
        notes.append(f"answer {name} is not in a code cell; its text is graded")
    found = [(i, _whole(exercise, text, lab, cells, i, marked, notes)) for i, text in code or found]
    if not found:
        return Answer(state="missing", message=f"there is no cell that starts with # EXERCISE {name}.")
    changed: list[str] = []
    for _, text in found:
        if not same(text, exercise.stub) and not any(same(text, other) for other in changed):
            changed.append(text)
    if not changed:
        return Answer(found[0][1], "unchanged", "the answer cell is as it was released.")
    if len(changed) > 1:
        message = f"{len(changed)} different cells start with # EXERCISE {name}: keep one."
        return Answer(state="duplicate", message=message)
    return Answer(changed[0])


def _whole(exercise: Exercise, text: str, lab: Lab, cells: list, index: int, marked: set, notes: list[str]) -> str:
    """An answer with the cells after it that a split left there: definitions, or what it is incomplete without."""
    for i, cell in enumerate(cells[index + 1:], index + 1):
        extra = cell["text"]
        if i in marked or cell["type"] != "code" or _plain(extra) in lab.known:
            break
        if extra.strip() and (extra[0] in " \t" or not _complete(text, exercise.stub) or _defines_only(extra)):
            text = f"{text}\n{extra}"
            notes.append(f"answer {exercise.name} goes on in the next cell")
    return text


def _complete(text: str, stub: str) -> bool:
    """Whether an answer is Python and defines all that its stub defines."""
    trees = parsed(text), parsed(stub)
    if trees[0] is None:
        return False
    defined = [{getattr(node, "name", None) or _target(node) for node in tree.body} for tree in trees if tree]
    return defined[-1] <= defined[0]


def _target(node: Any) -> str:
    """The name that a top-level assignment sets, or ""."""
    targets = getattr(node, "targets", [])
    return getattr(targets[0], "id", "") if targets else ""


def _defines_only(text: str) -> bool:
    tree = parsed(text)
    kinds = {"FunctionDef", "ClassDef", "Import", "ImportFrom"}
    return tree is not None and bool(tree.body) and all(type(node).__name__ in kinds for node in tree.body)


def _plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().replace("\r\n", "\n").split("\n"))
