"""The grader: untouched labs earn nothing, solutions all, and no answer harms more than its own exercise."""

import csv
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import psutil
import pytest

from utils.staff import grade, grade_kernel, grade_lab, grade_report
from utils.staff.grade_run import Grader, without_reference
from utils.staff.paths import LABS, ROOT, SOLUTIONS, Problem

sys.path.insert(0, str(Path(__file__).parent))
import grade_cheats  # noqa: E402
import grade_fixture  # noqa: E402

if sys.platform != "linux":
    pytest.skip("the grader runs on Linux (WSL2, Colab, the container)", allow_module_level=True)

REAL = sorted(LABS.glob("[0-9][0-9]_*.ipynb"))
LIMIT, SEED = 10, 7
ALL = grade_cheats.WRONG | grade_cheats.CHEATS | grade_cheats.BREAKS


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("lab")


@pytest.fixture(scope="module")
def lab(place):
    return grade_lab.load(grade_fixture.released(place / "01_fixture.ipynb"))


@pytest.fixture(scope="module")
def secret(tmp_path_factory):
    """A folder that is hidden from student code."""
    folder = tmp_path_factory.mktemp("solutions")
    (folder / "key.py").write_text("def traffic(n):\n    return 2 * n, 12 * n\n")
    return folder


@pytest.fixture(scope="module")
def grader(lab, secret):
    with Grader(lab, SEED, LIMIT, 1, [secret], memory=1200 * 2**20) as grader:
        yield grader


@pytest.fixture(scope="module")
def bare(lab):
    """As on a system that grants no namespaces."""
    with Grader(lab, SEED, LIMIT, 1, [], isolate=False) as grader:
        yield grader


def graded(grader, path, lab=None, limit=LIMIT):
    """The report on one file."""
    before = grader.lab, grader.limit
    grader.lab, grader.limit = lab or grader.lab, limit
    try:
        report, _ = grade.grade(grader, [(Path(path), Path(path).name)])
    finally:
        grader.lab, grader.limit = before
    return report["submissions"][0]


def left_over(grader):
    """Processes that an exercise left behind."""
    pids = [cage.process.pid for cage in grader.cages if cage.process]
    found = [child for pid in pids for child in psutil.Process(pid).children(recursive=True)]
    for process in psutil.process_iter(["cmdline"]):
        if "98765" in (process.info["cmdline"] or []):
            found.append(process)
    return found


# --- every lab ------------------------------------------------------------------------------------

@pytest.mark.parametrize("path", REAL, ids=lambda p: p.stem)
def test_untouched_lab_earns_nothing(grader, path):
    lab = grade_lab.load(path)
    one = graded(grader, path, lab)
    assert lab.total == 20 and one["points"] == 0 and {e["state"] for e in one["exercises"]} == {"unchanged"}


@pytest.mark.parametrize("path", REAL, ids=lambda p: p.stem)
def test_solution_earns_all(grader, path):
    lab = grade_lab.load(path)
    one = graded(grader, SOLUTIONS / path.name, lab, limit=120)
    assert one["points"] == lab.total, one


@pytest.mark.parametrize("path", REAL, ids=lambda p: p.stem)
def test_a_planted_error_in_each_exercise_costs_points(grader, path, tmp_path):
    lab = grade_lab.load(path)
    spec = importlib.util.spec_from_file_location("planted", ROOT / "tests" / "planted" / f"{path.stem}.py")
    spec.loader.exec_module(planted := importlib.util.module_from_spec(spec))
    wrong = {exercise: text for exercise, text in reversed(planted.PLANTED.values())}  # the first of each exercise
    book = nbformat.read(SOLUTIONS / path.name, 4)
    for cell in book.cells:
        name = cell.source.split()[2] if cell.source.startswith("# EXERCISE") else ""
        cell.source = wrong.get(name, cell.source)
    nbformat.write(book, tmp_path / "wrong.ipynb")
    one = graded(grader, tmp_path / "wrong.ipynb", lab, limit=60)
    assert len(wrong) >= 3
    assert all((e["points"] < e["of"]) == (e["name"] in wrong) for e in one["exercises"]), one


@pytest.mark.parametrize("path", REAL, ids=lambda p: p.stem)
def test_checks_run_without_their_reference(path):
    for exercise in grade_lab.load(path).exercises.values():
        for name, source in exercise.sources.items():
            assert "reference=None" in without_reference(source), name


# --- what the report says ---------------------------------------------------------------------------

def test_points_of_the_fixture(grader, lab, tmp_path):
    assert graded(grader, lab.path)["points"] == 0
    one = graded(grader, grade_fixture.answered(tmp_path / "a.ipynb"))
    assert (one["points"], one["notes"]) == (20, [])
    naive = {"1.2": grade_cheats.WRONG["no largest element"][1]}
    half = graded(grader, grade_fixture.answered(tmp_path / "b.ipynb", naive))
    assert [c["state"] for c in half["exercises"][1]["checks"]] == ["passed", "failed"] and half["points"] == 17


@pytest.mark.parametrize("name", ALL)
def test_an_answer_harms_only_its_exercise(grader, secret, tmp_path, name):
    exercise, text, states, phrase = ALL[name]
    text = text.replace("KEY", str(secret / "key.py"))
    beside = {"1.1": "1.2", "1.2": "1.1", "1.3": "1.1"}[exercise] if name in grade_cheats.BREAKS else ""
    path = grade_fixture.answered(tmp_path / "x.ipynb", {exercise: text}, f"{exercise} {beside}")
    start = time.monotonic()
    one = graded(grader, path)
    seconds = time.monotonic() - start
    found = {e["name"]: e for e in one["exercises"]}
    if name == "answer key from disk" and not grader.cages[0].isolated:
        pytest.skip("without namespaces nothing can be hidden")
    assert found[exercise]["state"] in states.split() and phrase in found[exercise]["message"], found[exercise]
    assert found[exercise]["points"] < found[exercise]["of"]
    assert not beside or found[beside]["state"] == "passed", one
    assert seconds < LIMIT + 10
    assert not left_over(grader)


KILL_ALL = "import os\ndef traffic(n):\n    os.kill(-1, 9)"
KILL_GRADER = ("import psutil, os\nfor p in psutil.process_iter(['cmdline']):\n"
               "    if 'grade_cage.py' in ' '.join(p.info['cmdline'] or []): p.kill()\nos._exit(0)")
BOMB = "import os\nwhile True: os.fork()"


@pytest.mark.parametrize("text", [KILL_ALL, KILL_GRADER, BOMB], ids=["kills all", "kills the grader", "fork bomb"])
def test_namespaces_hold_what_would_end_the_grader(grader, tmp_path, text):
    grader.start()
    grader.cages[0].ready()
    if not grader.cages[0].isolated:
        pytest.skip("this system grants no namespaces")
    one = graded(grader, grade_fixture.answered(tmp_path / "x.ipynb", {"1.1": text}))
    assert one["exercises"][0]["state"] in ("crashed", "error") and one["points"] == 16
    assert not left_over(grader)


def test_a_daemon_is_ended_and_costs_nothing(grader, bare, tmp_path):
    for cage in (grader, bare):
        one = graded(cage, grade_fixture.answered(tmp_path / "x.ipynb", {"1.2": grade_cheats.DAEMON}))
        assert one["points"] == 20 and not left_over(cage)


@pytest.mark.parametrize("name", ["kills its parent", "starts many processes", "ignores all signals", "prints for ever",
                                  "deletes its folder"])
def test_without_namespaces_only_the_exercise_is_lost(bare, tmp_path, name):
    exercise, text, _, _ = ALL[name]
    one = graded(bare, grade_fixture.answered(tmp_path / "x.ipynb", {exercise: text}))
    assert all((e["state"] == "passed") == (e["name"] != exercise) for e in one["exercises"])
    assert not left_over(bare)


def test_a_killed_cage_is_replaced(bare, tmp_path):
    text = ("import os, psutil\nif os.fork() == 0:\n    os.setsid()\n"
            "    os.execve('/bin/sleep', ['sleep', '98765'], {})\n"
            "for p in psutil.Process().parents():\n    if 'grade_cage.py' in ' '.join(p.cmdline()): last = p\n"
            "last.kill()\n"
            "os._exit(0)")
    one = graded(bare, grade_fixture.answered(tmp_path / "x.ipynb", {"1.1": text}))
    assert [e["state"] for e in one["exercises"]] == ["crashed", "passed", "passed"]
    assert not left_over(bare)


def test_student_code_sees_neither_the_teacher_nor_the_network(grader, tmp_path):
    text = ("import os, socket, psutil, utils\nassert 'staff' not in os.listdir(os.path.dirname(utils.__file__))\n"
            f"assert {str(ROOT)!r} not in ' '.join(os.environ.values())\n"
            "assert not {'USER', 'SSH_AUTH_SOCK', 'LOGNAME'} & set(os.environ)\n")
    closed = "assert [name for _, name in socket.if_nameindex()] == ['lo'] and len(psutil.pids()) < 5\n"
    grader.cages[0].ready()
    text += (closed if grader.cages[0].isolated else "") + grade_cheats.RIGHT_COUNT
    one = graded(grader, grade_fixture.answered(tmp_path / "x.ipynb", {"1.1": text}))
    assert one["points"] == 20, one


# --- files from other front ends ----------------------------------------------------------------------

def _old_format(book):
    book["nbformat_minor"] = 0
    for cell in book["cells"]:
        cell.pop("id", None)
        cell["metadata"] = {"id": "x" * 12, "executionInfo": {"user": {"displayName": "someone"}}}


def _no_markers(book):
    for cell in book["cells"]:
        if cell["source"].startswith("# EXERCISE"):
            cell["source"] = cell["source"].split("\n", 1)[1]


def _only_ids(book):
    _no_markers(book)
    for cell in book["cells"]:
        cell["metadata"] = {}


def _added(book):
    for i in range(len(book["cells"]), 0, -1):
        book["cells"].insert(i, {"cell_type": "code", "metadata": {}, "source": f"1 / 0  # try {i}", "outputs": [],
                                 "execution_count": None})


def _moved(book):
    book["cells"].reverse()


def _split(book):
    for i in range(len(book["cells"]) - 1, -1, -1):
        cell = book["cells"][i]
        if cell["source"].startswith("# EXERCISE"):
            lines = cell["source"].split("\n")
            book["cells"].insert(i + 1, {**cell, "id": f"new{i}", "metadata": {}, "source": "\n".join(lines[3:])})
            cell["source"] = "\n".join(lines[:3])


def _merged(book):
    code = [c for c in book["cells"] if c["cell_type"] == "code"]
    code[2]["source"] = "\n\n".join(c["source"] for c in code[2:])
    book["cells"] = code[:3]


def _retyped(book):
    for cell in book["cells"]:
        if cell["source"].startswith("# EXERCISE"):
            cell.update(cell_type="raw")


def _checks_edited(book):
    for cell in book["cells"]:
        if cell["source"].startswith("# CHECK"):
            cell["source"] = cell["source"].split("\n")[0] + "\nprint('passed')"


def _checks_deleted(book):
    book["cells"] = [c for c in book["cells"] if not c["source"].startswith("# CHECK")]


def _copied(book):
    book["cells"] += [{**c, "id": f"copy{i}"} for i, c in enumerate(book["cells"]) if c["source"].startswith("# EXER")]


def _old_stubs_kept(book):
    stubs = json.loads(nbformat.writes(nbformat.from_dict(grade_fixture.lab_of(grade_fixture.solution()))))["cells"]
    book["cells"] += [{**c, "id": f"stub{i}", "source": "".join(c["source"])} for i, c in enumerate(stubs)
                      if "".join(c["source"]).startswith("# EXERCISE")]


def _tags(book):
    for cell in book["cells"]:
        cell["metadata"]["tags"] = ["nbval-skip", "raises-exception"]


def _windows(book):
    for cell in book["cells"]:
        cell["source"] = cell["source"].replace("\n", "\r\n")


BENT = [_old_format, _no_markers, _only_ids, _added, _moved, _split, _merged, _retyped, _checks_edited, _checks_deleted,
        _copied, _old_stubs_kept, _tags, _windows]


@pytest.mark.parametrize("bend", BENT, ids=lambda f: f.__name__.strip("_"))
def test_a_file_from_elsewhere_scores_what_it_deserves(lab, grader, tmp_path, bend):
    book = grade_fixture.plain(nbformat.read(grade_fixture.answered(tmp_path / "x.ipynb"), 4))
    for cell in book["cells"]:
        cell["source"] = "".join(cell["source"])
    bend(book)
    path = tmp_path / "renamed (1).ipynb"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(book).encode())
    one = graded(grader, path)
    assert one["points"] == 20, one
    untouched = grade_fixture.plain(nbformat.read(lab.path, 4))
    for cell in untouched["cells"]:
        cell["source"] = "".join(cell["source"])
    bend(untouched)
    path.write_text(json.dumps(untouched))
    assert graded(grader, path)["points"] == 0


def test_two_answers_and_none(grader, tmp_path):
    book = nbformat.read(grade_fixture.answered(tmp_path / "x.ipynb"), 4)
    book.cells = [c for c in book.cells if not c.source.startswith("# EXERCISE 1.2")]
    book.cells.append(nbformat.v4.new_code_cell("# EXERCISE 1.1\ndef traffic(n):\n    return 1, 1"))
    nbformat.write(book, tmp_path / "y.ipynb")
    one = graded(grader, tmp_path / "y.ipynb")
    assert [e["state"] for e in one["exercises"]] == ["duplicate", "missing", "passed"] and one["points"] == 8


# --- batches, reports, exit codes -----------------------------------------------------------------------

@pytest.fixture
def folder(lab, tmp_path, monkeypatch):
    """A folder of submissions, some of which cannot be graded; `labs` is the fixture's folder."""
    monkeypatch.setattr(grade, "LABS", lab.path.parent)
    folder = tmp_path / "in"
    (folder / "carol").mkdir(parents=True)
    grade_fixture.answered(folder / "01_fixture_=ann.ipynb", {"1.1": "def traffic(n):\n    return n"})
    grade_fixture.answered(folder / "carol" / "01_fixture.ipynb")
    (folder / "empty.ipynb").write_text("")
    (folder / "half.ipynb").write_text('{"cells": [')
    (folder / "list.ipynb").write_text("[1, 2]")
    (folder / "deep.ipynb").write_text("[" * 100_000)
    (folder / "bytes.ipynb").write_bytes(b"\xff\x00\x80")
    (folder / "odd.ipynb").write_text('{"cells": [{"cell_type": "code", "source": 7}]}')
    (folder / "other.ipynb").write_text('{"cells": [{"cell_type": "code", "source": "1"}]}')
    (folder / "link.ipynb").symlink_to(folder / "carol" / "01_fixture.ipynb")
    return folder


def test_a_batch_with_broken_files(folder, tmp_path, capsys):
    texts = []
    for out in ("one", "two"):
        assert grade.command("01", str(folder), "--seed", "3", "--limit", "20", "--out", str(tmp_path / out)) == 1
        texts.append((tmp_path / out / "report.json").read_bytes())
    assert texts[0] == texts[1]
    report = json.loads(texts[0])
    points = {one["file"]: one["points"] for one in report["submissions"] if not one["problem"]}
    assert points == {"01_fixture_=ann.ipynb": 16, "carol/01_fixture.ipynb": 20}
    assert len([one for one in report["submissions"] if one["problem"]]) == 8
    assert str(tmp_path) not in texts[0].decode() and os.uname().nodename not in texts[0].decode()
    rows = list(csv.DictReader((tmp_path / "one" / "grades.csv").open()))
    assert {r["student"]: r["1.1"] for r in rows}["carol"] == "4"
    assert any(r["student"] == "'=ann" for r in rows) and set(rows[0]) >= {"1.1", "1.2", "1.3"}
    pages = list((tmp_path / "one" / "students").iterdir())
    assert len(pages) == 10
    shown = capsys.readouterr()
    assert "seed 3" in shown.out and "link.ipynb could not be graded" in shown.out and "of 10 submissions" in shown.err


def test_one_submission_on_the_command_line(folder, tmp_path, capsys):
    path = folder / "01_fixture_=ann.ipynb"
    assert grade.command(str(LABS / "01_fixture.ipynb"), str(path), "--out", str(tmp_path / "o"), "--seed", "4") == 0
    shown = capsys.readouterr().out
    assert re.search(r"1\.1 +failed +0/4  Check 1\.1", shown) and "16 of 20 points" in shown


@pytest.mark.parametrize("args", [("99",), ("01", "nowhere.ipynb"), ("01", "--seed", "-1"), ("01", "--limit", "0"), ()])
def test_wrong_usage_is_told_by_status_2(lab, args, monkeypatch):
    monkeypatch.setattr(grade, "LABS", lab.path.parent)
    with pytest.raises((Problem, SystemExit)) as told:
        grade.command(*args)
    assert told.type is Problem or told.value.code == 2


def test_an_empty_folder_is_wrong_usage(lab, tmp_path, monkeypatch):
    monkeypatch.setattr(grade, "LABS", lab.path.parent)
    with pytest.raises(Problem, match="holds no notebook"):
        grade.command("01", str(tmp_path))


def test_students_are_named_by_file_folder_or_mapping():
    names = {"06_softmax_ann.ipynb": "ann", "ann_06_softmax (2).ipynb": "ann", "ann/06_softmax.ipynb": "ann",
             "ann/06_softmax/06_softmax.ipynb": "ann", "42.ipynb": "Bob, the 42nd"}
    assert {n: grade.student_of(n, "06_softmax", {"42.ipynb": "Bob, the 42nd"}) for n in names} == names


def test_views_are_escaped():
    one = {"file": "a`.ipynb", "student": "<b>|*x*", "problem": "", "notes": ["<i>"], "points": 0.0, "exercises": [
        {"name": "1.1", "state": "failed", "points": 0.0, "of": 2.0, "message": "a | b <script>", "checks": []}]}
    page = grade_report.as_markdown(one, {"lab": "01_x", "points": 20.0, "seed": 1})
    assert "<b>" not in page and "<script>" not in page and "a \\| b" in page


def test_speed_on_a_class(lab, grader, tmp_path):
    files = [(grade_fixture.answered(tmp_path / f"{i}.ipynb"), f"{i}.ipynb") for i in range(6)]
    start = time.monotonic()
    report, _ = grade.grade(grader, files)
    assert all(one["points"] == 20 for one in report["submissions"])
    assert (time.monotonic() - start) * 30 / 6 < 600


# --- the kernel's text -------------------------------------------------------------------------------------

def test_kernel_text_keeps_the_language_only():
    text = grade_kernel.kernel_only(
        "import math; import os; os.getcwd()\nfrom triton.language.extra import libdevice\nLOG2E: tl.constexpr = 1.44\n"
        "HALF = tl.constexpr(math.log2(2) / 2)\nprint('x')\n@triton.jit\ndef inner(x):\n    return tl.exp(x) * LOG2E\n"
        "@triton.jit\ndef outer(p, n, B: tl.constexpr):\n    i = tl.arange(0, B)\n"
        "    m = float('-inf')\n    for k in range(0, n, B):\n        m = max(m, inner(tl.load(p + i, mask=i < n)))\n"
        "launch = outer[(1,)]\n")
    assert "import os" not in text and "getcwd" not in text and "launch" not in text and "print" not in text
    assert "LOG2E" in text and "HALF" in text and "inner" in text and "outer" in text


# --- nbgrader and the container ------------------------------------------------------------------------------

@pytest.mark.filterwarnings("ignore")
def test_nbgrader_takes_and_grades_the_labs(tmp_path, monkeypatch):
    pytest.importorskip("nbgrader")
    from nbgrader.apps import NbGraderAPI
    from nbgrader.validator import Validator
    from traitlets.config import Config

    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")  # it calls alembic

    path = SOLUTIONS / REAL[0].name if REAL else None
    (tmp_path / "utils").symlink_to(ROOT / "utils")
    name = path.stem if path else "01_fixture"
    source = tmp_path / "source" / name / f"{name}.ipynb"
    source.parent.mkdir(parents=True)
    nbformat.write(nbformat.read(path, 4) if path else grade_fixture.solution(), source)
    config = Config()
    config.CourseDirectory.root = str(tmp_path)
    config.ExecutePreprocessor.timeout = 300
    config.ClearSolutions.enforce_metadata = True
    api = NbGraderAPI(config=config)
    made = api.generate_assignment(name)
    assert made["success"], made.get("log")
    release = tmp_path / "release" / name / source.name
    for student, book in (("solved", source), ("untouched", REAL[0] if REAL else release)):
        target = tmp_path / "submitted" / student / name / source.name
        target.parent.mkdir(parents=True)
        shutil.copyfile(book, target)
        done = api.autograde(name, student)
        assert done["success"], done.get("log")
    assert set(Validator(config=config).validate(str(source))) <= {"passed"}
    scores = {s["student"]: s["score"] for s in api.get_submissions(name) if s["autograded"]}
    assert scores == {"solved": 20, "untouched": 0}


RECIPE = ROOT / "Containerfile"


def test_container_recipe():
    lines = [line for line in RECIPE.read_text().replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    words = {line.split()[0] for line in lines}
    assert words == {"FROM", "WORKDIR", "COPY", "RUN", "USER", "ENV", "ENTRYPOINT"}
    assert lines[0].startswith("FROM ") and re.search(r":\d", lines[0])
    user = [line for line in lines if line.startswith("USER ")]
    assert user and user[-1].split()[1] not in ("root", "0") and lines.index(user[-1]) < len(lines) - 1
    copied = " ".join(line for line in lines if line.startswith("COPY"))
    assert "solutions" not in copied and " . " not in copied
    guide = (ROOT / "TEACHING.md").read_text()
    for option in ("--network none", "--read-only", "--cap-drop all", "--pids-limit", "--memory", ":ro",
                   "no-new-privileges"):
        assert option in guide, option


def test_the_command_that_the_container_runs(lab, tmp_path):
    """The copied files alone, at another place, grade a submission."""
    course = tmp_path / "course"
    course.mkdir()
    for line in RECIPE.read_text().splitlines():
        if line.startswith("COPY"):
            *sources, _ = [word for word in line.split()[1:] if not word.startswith("--")]
            for source in sources:
                if (ROOT / source).is_dir():
                    shutil.copytree(ROOT / source, course / source, ignore=shutil.ignore_patterns("__pycache__"))
                elif (ROOT / source).exists():
                    shutil.copy(ROOT / source, course / source)
    shutil.copy(lab.path, course / "labs")
    entry = json.loads(re.search(r"^ENTRYPOINT (\[.*\])", RECIPE.read_text(), re.MULTILINE)[1])
    path = grade_fixture.answered(tmp_path / "ann.ipynb", {"1.3": "", "1.2": ""})
    done = subprocess.run([sys.executable, *entry[1:], "01_fixture", str(path), "--out", str(tmp_path / "o")],
                          cwd=course, capture_output=True, text=True,
                          env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)})
    assert done.returncode == 0 and "4 of 20 points" in done.stdout, done.stderr
