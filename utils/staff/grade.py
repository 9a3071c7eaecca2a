"""`make grade`: grade one submission of a lab, or a folder of them.

Each submission is rebuilt from the released lab: only the text of its answer cells is taken. Each exercise
runs by nbval in a process of its own; the values that come out are compared here, with fresh inputs.
"""

import argparse
import csv
import os
import queue
import re
import secrets
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from utils import device
from utils.staff import grade_lab, grade_report
from utils.staff.grade_run import Grader
from utils.staff.paths import LABS, OUT, ROOT, SOLUTIONS, WORK, Problem, main

LIMIT = 120  # seconds an exercise may take


def lab_path(name: str) -> Path:
    """labs/NN_topic.ipynb for a path or a name such as "06"; Problem if there is none."""
    labs = sorted(LABS.glob("[0-9][0-9]_*.ipynb"))
    stem = Path(name).stem
    digits = re.match(r"\d*", stem)[0]
    found = [p for p in labs if p.stem == stem] or [p for p in labs if stem == digits and p.stem[:2] == digits.zfill(2)]
    if not found:
        raise Problem(f"there is no lab {name!r}: say LAB=labs/NN_topic.ipynb; "
                      f"released are {', '.join(p.stem for p in labs) or 'none'}.")
    return found[0]


def collect(place: Path, lab: str) -> list[tuple[Path, str]]:
    """(path, name in the report) of the submissions at a file or in a folder and its subfolders."""
    if not place.is_dir():
        if not place.exists():
            raise Problem(f"{place} does not exist: check the name.")
        return [(place, place.name)]
    found = []
    for path in sorted(place.rglob("*"), key=lambda p: p.relative_to(place).as_posix()):
        name = path.relative_to(place)
        if any(part.startswith(".") for part in name.parts) or (path.is_dir() and not path.is_symlink()):
            continue
        if path.suffix.lower() == ".ipynb" or (path.suffix.lower() in (".json", ".txt") and _is_notebook(path)):
            found.append((path, name.as_posix()))
        elif path.suffix.lower() != ".csv":
            print(f"left out: {name} is no notebook", file=sys.stderr)
    if not found:
        raise Problem(f"{place} holds no notebook: nothing was graded.")
    return found


def _is_notebook(path: Path) -> bool:
    with path.open("rb") as file:
        return path.is_file() and b'"cells"' in file.read(1_000_000)


def student_of(name: str, lab: str, mapping: dict[str, str]) -> str:
    """Who handed a file in: by the mapping, or from its name without the lab's, or from its folder's."""
    if name in mapping or Path(name).name in mapping:
        return mapping.get(name) or mapping[Path(name).name]
    rest = re.sub(r"(\.ipynb|\.json|\.txt)+$", "", Path(name).name, flags=re.IGNORECASE)
    rest = re.sub(r"\s*\(\d+\)$", "", rest).replace(lab, "").strip(" _.-")  # a browser numbers downloads
    parents = [part for part in Path(name).parts[:-1] if part != lab]
    return rest or (parents[-1] if parents else lab)


def read_mapping(path: str) -> dict[str, str]:
    """{file: student} from a CSV file with two columns; a first row "file,student" is a title."""
    if not path:
        return {}
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(f"the mapping {path} cannot be read ({type(error).__name__}): give a CSV file,student.") from None
    if any(len(row) != 2 for row in rows):
        raise Problem(f"the mapping {path} needs two columns: file,student.")
    return {file.strip(): student.strip() for file, student in rows if file != "file"}


def grade(grader: Grader, files: Sequence[tuple[Path, str]], mapping: dict[str, str] | None = None,
          tell: Callable[[str], None] = lambda text: None) -> tuple[dict[str, Any], dict[str, float]]:
    """(report, timings) of some submissions; the report depends on the files, the lab, the seed and the limit only."""
    lab, submissions, units = grader.lab, [], []
    for path, name in files:
        one = {"file": name, "student": student_of(name, lab.path.stem, mapping or {}), "problem": "", "notes": [],
               "exercises": [], "points": 0.0}
        submissions.append(one)
        try:
            found, one["notes"] = grade_lab.answers(lab, grade_lab.submission(path))
            units += [(one, lab.exercises[key], answer) for key, answer in found.items()]
        except grade_lab.Unreadable as error:
            one["problem"] = str(error)
        except Exception as error:  # one file never stops the others
            one["problem"] = f"it could not be read ({type(error).__name__})."
    left = {one["file"]: sum(unit[0] is one for unit in units) for one in submissions}
    timings: dict[str, float] = {}
    with ThreadPoolExecutor(len(grader.cages)) as pool:
        if any(not answer.state for *_, answer in units):
            grader.start()
        cages: queue.Queue = queue.Queue()
        for cage in grader.cages:
            cages.put(cage)

        def work(unit: tuple) -> dict[str, Any]:
            one, exercise, answer = unit
            cage = cages.get()
            try:
                results, seconds = grader.grade(exercise, answer, cage)
            finally:
                cages.put(cage)
            timings[f"{one['file']} {exercise.name}"] = seconds
            left[one["file"]] -= 1
            tell(f"{sum(not n for n in left.values())} of {len(submissions)} submissions")
            checks = [{"name": name, "state": r.state, "message": r.message, "of": exercise.points[name],
                       "points": exercise.points[name] if r.state == "passed" else 0.0} for name, r in results.items()]
            return grade_report.summary({"name": exercise.name, "checks": checks})

        for (one, exercise, _), future in zip(units, [pool.submit(work, unit) for unit in units]):
            try:
                one["exercises"].append(future.result())
            except Problem:
                raise
            except Exception as error:
                one["problem"] = f"the grader itself failed at {exercise.name} ({type(error).__name__}: {error})."
        timings["isolated"] = float(all(cage.isolated for cage in grader.cages if cage.process))
    for one in submissions:
        one["points"] = 0.0 if one["problem"] else sum(e["points"] for e in one["exercises"])
    return {"lab": lab.path.stem, "released": lab.digest, "seed": grader.seed, "limit": grader.limit,
            "points": lab.total, "exercises": list(lab.exercises), "submissions": submissions}, timings


def command(*args: str) -> int:
    """Grade from the command line; 0 if all was graded, 1 if something could not be, 2 for wrong usage."""
    parser = argparse.ArgumentParser(prog="make grade", description="Grade a lab by its released checks.")
    parser.add_argument("lab", help="labs/NN_topic.ipynb")
    parser.add_argument("place", nargs="?", default="", help="a submission or a folder of them (your own copy)")
    parser.add_argument("--seed", type=int, default=None, help="of the random inputs (default: a new one each time)")
    parser.add_argument("--limit", type=int, default=LIMIT, help=f"seconds an exercise may take ({LIMIT})")
    parser.add_argument("--jobs", type=int, default=2, help="exercises at a time (2)")
    parser.add_argument("--map", default="", help="CSV file,student")
    parser.add_argument("--out", default="", help="folder of the reports (out/grades/NN_topic)")
    asked = parser.parse_args(args)
    if asked.limit < 1 or asked.jobs < 1 or (asked.seed or 0) < 0:
        raise Problem("--limit and --jobs start at 1, --seed at 0.")
    path, given = lab_path(asked.lab), Path(asked.lab)
    own = WORK / "labs" / path.name
    default = given if given.exists() and given.resolve() != path else own if own.exists() else path
    place = Path(asked.place) if asked.place else default
    files = collect(place, path.stem)
    seed = secrets.randbelow(2**31) if asked.seed is None else asked.seed
    hidden = [SOLUTIONS, OUT, *([place.resolve()] if place.is_dir() else [])]
    needed = (ROOT, Path(sys.prefix).resolve())
    hide = [p for p in hidden if p.is_dir() and not any(q.is_relative_to(p) for q in needed)]
    lab, mapping = grade_lab.load(path), read_mapping(asked.map)

    def tell(text: str) -> None:
        print(f"\r{text} ", end="", file=sys.stderr, flush=True)

    with Grader(lab, seed, asked.limit, asked.jobs, hide) as grader:
        report, timings = grade(grader, files, mapping, tell)
    print(file=sys.stderr)
    folder = Path(asked.out) if asked.out else OUT / "grades" / path.stem
    grade_report.write(report, timings, folder)
    if place.is_dir():
        print(grade_report.table(report).drop(columns=["file"]).to_string(index=False, na_rep="", float_format="%g"))
    else:
        print(grade_report.as_text(report["submissions"][0], report))
    failed = [one for one in report["submissions"] if one["problem"]]
    for one in failed if place.is_dir() else ():
        print(f"{one['file']} could not be graded: {one['problem']}")
    if not timings["isolated"]:
        print("note: this system gives the grader no namespaces; student code can see and end your processes, "
              "so grade files you do not trust in the container (TEACHING.md).")
    print(f"seed {seed}; reports in {folder}")
    return 1 if failed else 0


if __name__ == "__main__":
    if device.ON_GPU:  # grades are the same everywhere: on the CPU, in the interpreter
        again = [sys.executable, "-m", "utils.staff.grade", *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    main(command)
