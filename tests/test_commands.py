"""Commands answer in one sentence, nobody's work is overwritten, and the environment installs the course."""

import importlib.util
import json
import re
import subprocess
import sys
import sysconfig
import tomllib

import nbformat
import pytest
from nbformat import v4
from tree import contents, copy_to, is_one_sentence, python

from utils.staff import doctor, execute, paths, sync, work
from utils.staff.paths import ROOT, Problem

# --- one sentence and exit status 2 --------------------------------------------------------------

BROKEN = {"cut short": '{"cells": [{"cell_type": "code", "sou', "empty": "", "a list": "[]", "no object": "null",
          "no cells": '{"nbformat": 4, "nbformat_minor": 5, "metadata": {}}', "an empty object": "{}",
          "cells that are none": '{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": 3}',
          "an unknown version": '{"nbformat": 9, "nbformat_minor": 5, "metadata": {}, "cells": []}',
          "a version in quotes": '{"nbformat": "4", "nbformat_minor": 5, "metadata": {}, "cells": []}'}


@pytest.fixture
def course(tmp_path, monkeypatch):
    """The commands of this process work on a small course in a folder of its own."""
    for name in ("notebooks", "labs", "solutions"):
        (tmp_path / name).mkdir()
        book = v4.new_notebook(cells=[v4.new_code_cell("print('fine')" if name == "notebooks" else "1 + 1")])
        for stem in ("01_first", "02_second"):
            nbformat.write(book, tmp_path / name / f"{stem}.ipynb")
    places = {name.upper(): tmp_path / name for name in ("notebooks", "labs", "solutions", "work", "out")}
    places["ROOT"] = tmp_path
    for module in (paths, work, execute):
        for name, place in places.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, place)
    return tmp_path


def refused(action, monkeypatch, capsys, *args: str) -> str:
    """What a command says on stderr when it leaves with status 2."""
    monkeypatch.setattr(sys, "argv", ["command", *args])
    with pytest.raises(SystemExit) as left:
        paths.main(action)
    said = capsys.readouterr()
    assert left.value.code == 2 and said.out == "" and said.err.startswith("error: ") and is_one_sentence(said.err)
    return said.err


@pytest.mark.parametrize("args, words", [
    ((), "say which lesson: LESSON=NN, one of 01_first, 02_second."), (("",), "say which lesson"),
    (("77",), "there is no lesson '77'; written are 01_first, 02_second."), (("²",), "no lesson '²'"),
    (("first",), "no lesson 'first'"), (("01_second",), "no lesson '01_second'"), (("-1",), "no lesson '-1'"),
    (("1", "2"), "1 2")])
def test_execute_and_reset_refuse_an_unknown_lesson(course, monkeypatch, capsys, args, words):
    before = contents(course)
    assert words in refused(execute.run, monkeypatch, capsys, *args)
    assert words in refused(work.command, monkeypatch, capsys, "reset", *args)
    assert contents(course) == before


@pytest.mark.parametrize("name", ["2", "02", "02_second"])
def test_a_lesson_goes_by_its_number_or_its_name(course, name):
    assert paths.lesson(name).name == "02_second.ipynb"


@pytest.mark.parametrize("action, args", [
    (work.command, ()), (work.command, ("opne",)), (work.command, ("open", "01")), (doctor.doctor, ("now",)),
    (sync.sync, ("01",))])
def test_a_command_refuses_what_it_does_not_take(course, monkeypatch, capsys, action, args):
    refused(action, monkeypatch, capsys, *args)


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_notebook_is_refused_by_name(course, monkeypatch, capsys, what):
    path = course / "notebooks" / "01_first.ipynb"
    path.write_text(BROKEN[what])
    assert "01_first.ipynb is not a readable notebook" in refused(execute.run, monkeypatch, capsys, "01")
    assert path.read_text() == BROKEN[what]


def test_a_missing_notebook_is_refused_by_name(course):
    with pytest.raises(Problem, match="03_none.ipynb does not exist"):
        paths.read(course / "notebooks" / "03_none.ipynb")


def test_a_lesson_that_fails_is_told_in_one_sentence_and_can_be_read(course, monkeypatch, capsys):
    path = course / "notebooks" / "01_first.ipynb"
    nbformat.write(v4.new_notebook(cells=[v4.new_code_cell("print(6 * 7)"), v4.new_code_cell("1 / 0")]), path)
    before = path.read_bytes()
    said = refused(execute.run, monkeypatch, capsys, "01")
    assert "01_first.ipynb stopped with ZeroDivisionError: division by zero" in said and "out/01_first.ipynb" in said
    assert paths.read(course / "out" / "01_first.ipynb").cells[0].outputs[0].text == "42\n"
    assert path.read_bytes() == before, "a lesson is executed into out/ only"


def test_the_commands_themselves_leave_with_status_2_and_no_traceback(tmp_path):
    tree = copy_to(tmp_path / "course")
    lesson = next((tree / "notebooks").glob("01_*.ipynb"))
    lesson.write_text(lesson.read_text()[:3000])
    for command, words in (("execute 01", f"{lesson.name} is not a readable notebook"), ("work reset 99", "'99'")):
        done = python("-m", *f"utils.staff.{command}".split(), cwd=tree)
        assert done.returncode == 2 and done.stdout == "" and words in done.stderr and is_one_sentence(done.stderr)


def test_the_doctor_says_what_is_missing_in_one_sentence_each(monkeypatch, capsys):
    assert doctor.doctor() == 0 and capsys.readouterr().out.endswith("everything is in place\n")
    monkeypatch.setattr(doctor, "PACKAGES", (*doctor.PACKAGES, "no_such_package"))
    monkeypatch.setattr(sys, "version_info", (3, 9, 1, "final", 0))
    assert doctor.doctor() == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("to mend: ")]
    assert len(lines) == 2 and "missing: no_such_package" in lines[1] and all(map(is_one_sentence, lines))


# --- nobody's work is overwritten ----------------------------------------------------------------

def test_fill_makes_what_is_missing_and_never_overwrites(course):
    assert len(work.fill()) == 4 and work.fill() == []
    mine = course / "work" / "labs" / "01_first.ipynb"
    mine.write_text("mine")
    (course / "work" / "notebooks" / "02_second.ipynb").unlink()
    assert work.fill() == [course / "work" / "notebooks" / "02_second.ipynb"]
    assert mine.read_text() == "mine" and not (course / "work" / "solutions").exists(), "no answers in a working copy"


def test_reset_keeps_an_edited_copy_as_a_backup(course, capsys):
    work.fill()
    for folder in ("notebooks", "labs"):
        (course / "work" / folder / "01_first.ipynb").write_text(f"my {folder}")
        (course / "work" / folder / "02_second.ipynb").write_text("another")
    work.reset("1")
    said = capsys.readouterr().out
    for folder in ("notebooks", "labs"):
        mine, fresh = course / "work" / folder, course / folder / "01_first.ipynb"
        backup, = mine.glob("01_first.*.backup.ipynb")
        assert backup.read_text() == f"my {folder}" and f"work/{folder}/{backup.name}" in said
        assert (mine / "01_first.ipynb").read_bytes() == fresh.read_bytes()
        assert (mine / "02_second.ipynb").read_text() == "another"


def test_a_second_reset_within_a_second_is_refused_and_loses_neither_version(course, monkeypatch):
    monkeypatch.setattr(work.time, "strftime", lambda form: "20260101-120000")
    mine = course / "work" / "notebooks" / "01_first.ipynb"
    work.fill()
    mine.write_text("first")
    work.reset("01")
    mine.write_text("second")
    with pytest.raises(Problem, match="try again"):
        work.reset("01")
    assert mine.read_text() == "second"
    assert mine.with_name("01_first.20260101-120000.backup.ipynb").read_text() == "first"


def test_reset_works_before_the_first_fill_and_without_a_lab(course):
    (course / "labs" / "02_second.ipynb").unlink()
    assert work.reset("02") == 0
    assert [p.name for p in (course / "work").rglob("*.ipynb")] == ["02_second.ipynb"]


# --- installation --------------------------------------------------------------------------------

def test_every_module_that_the_makefile_runs_exists():
    text = (ROOT / "Makefile").read_text()
    modules = re.findall(r"-m (utils\.[\w.]+)", text)
    assert len(modules) >= 5
    assert [m for m in modules if importlib.util.find_spec(m) is None] == []
    targets = re.search(r"\.PHONY: (.*)", text)[1].split()
    assert set(re.findall(r'echo "make (\w+)', text)) | {"help"} == set(targets), "make help lists every command"


def test_the_courses_packages_are_the_projects_dependencies():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [re.match(r"\w+", line)[0] for line in project["dependencies"]]
    assert sorted(names) == sorted(doctor.PACKAGES)
    pinned = {line.split("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    assert set(names) <= pinned, "every one has a tested version"


def test_the_conda_environment_installs_the_course(tmp_path):
    yaml = pytest.importorskip("yaml")
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    pip, = (entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))
    assert environment["name"] and "pip" in environment["dependencies"]
    tree, folder = copy_to(tmp_path / "course"), tmp_path / "venv"
    (tree / "requirements.txt").write_text("\n".join(pip) + "\n")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    new = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    site = subprocess.run([new, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], capture_output=True,
                          text=True, check=True).stdout.strip()
    with open(f"{site}/tested.pth", "w") as file:  # the versions that are installed here stand for conda's and pip's
        file.write(sysconfig.get_path("purelib"))
    done = python("-m", "pip", "--python", str(new), "install", "--no-index", "--no-build-isolation", "--quiet",
                  "--disable-pip-version-check", "-r", "requirements.txt", cwd=tree)
    assert done.returncode == 0, done.stderr[-2000:]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    code = "import utils, json; print(json.dumps([utils.__file__, len(utils.record.load('01_roofline', 'roof'))]))"
    done = python("-c", code, cwd=elsewhere, executable=str(new))
    where, rows = json.loads(done.stdout or "[]") or pytest.fail(done.stderr[-2000:])
    assert where == str(tree / "utils" / "__init__.py") and rows > 2
