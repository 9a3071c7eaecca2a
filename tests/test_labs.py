"""Labs as a student meets them: untouched they fail with their own sentences, solved they pass, mistakes are caught."""

import importlib.util
import json
import os
import re
import subprocess
import sys

import pytest

from utils.staff.labs import ANSWER, CHECK
from utils.staff.paths import LABS, ROOT, SOLUTIONS, read

STEMS = sorted(p.stem for p in LABS.glob("*.ipynb"))


def execute(setup: list[str], runs: list[list[str]], tmp_path, stop: bool = False) -> list[list[str]]:
    """Run cells in one fresh process (see lab_runner)."""
    answer = tmp_path / "answer.json"
    job = json.dumps({"setup": setup, "runs": runs, "stop": stop})
    done = subprocess.run([sys.executable, str(ROOT / "tests" / "lab_runner.py"), str(answer)], cwd=LABS, text=True,
                          input=job, capture_output=True, timeout=900, env=dict(os.environ, MPLBACKEND="Agg"))
    assert answer.exists(), done.stderr[-2000:]
    return json.loads(answer.read_text())


def cells_of(path) -> tuple[list[str], dict[str, str], list[tuple[str, str]]]:
    """(setup cells, exercise → answer, [(check, source)]) of a lab."""
    sources = [c.source for c in read(path).cells if c.cell_type == "code"]
    answers = {ANSWER.match(s)[1]: s for s in sources if ANSWER.match(s)}
    checks = [(CHECK.match(s)[1], s) for s in sources if CHECK.match(s)]
    setup = [s for s in sources if not ANSWER.match(s) and not CHECK.match(s)]
    assert len(setup) <= 2, "a lab has only setup, answer and check cells"
    return setup, answers, checks


def planted(stem: str) -> dict[str, tuple[str, str]]:
    """name of a mistake → (exercise, wrong answer cell), from tests/planted/<stem>.py."""
    spec = importlib.util.spec_from_file_location("planted", ROOT / "tests" / "planted" / f"{stem}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PLANTED


@pytest.mark.parametrize("stem", STEMS)
def test_untouched_lab_fails_with_a_sentence_of_each_exercise(stem, tmp_path):
    setup, answers, checks = cells_of(LABS / f"{stem}.ipynb")
    said = execute(setup, [list(answers.values()), [source for _, source in checks]], tmp_path)
    for (name, _), sentence in zip(checks, said[1]):
        exercise = re.match(r"\d+\.\d+", name)[0]
        assert re.match(rf"(Exercise|Check) {exercise}[a-z]?\b", sentence), f"check {name} said {sentence!r}"


@pytest.mark.parametrize("stem", STEMS)
def test_solution_passes_every_check(stem, tmp_path, record_property):
    setup, answers, checks = cells_of(SOLUTIONS / f"{stem}.ipynb")
    said = execute(setup, [[answer, *[s for c, s in checks if c.startswith(name)]] for name, answer in answers.items()],
                   tmp_path)
    assert not any(problem for run in said for problem in run), said
    record_property("checks", len(checks))


@pytest.mark.parametrize("stem", STEMS)
def test_planted_mistakes_are_caught(stem, tmp_path):
    setup, answers, checks = cells_of(SOLUTIONS / f"{stem}.ipynb")
    mistakes = planted(stem)
    assert len(mistakes) >= 3
    runs = []
    for name, (exercise, source) in mistakes.items():
        assert exercise in answers and ANSWER.match(source), f"{name} is no answer to an exercise of this lab"
        runs.append([source, *[s for c, s in reversed(checks) if c.startswith(exercise)]])  # the hardest check first
    for name, said in zip(mistakes, execute(setup, runs, tmp_path, stop=True)):
        assert not said[0], f"{name}: the cell itself failed ({said[0]}), so nothing was tested"
        assert any(said[1:]), f"{name} was not caught"
