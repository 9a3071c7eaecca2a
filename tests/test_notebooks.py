"""Every lesson runs from top to bottom on a CPU, and its machine-independent outputs are the stored ones."""

import os
import re
import subprocess
import sys

import pytest

from utils.staff.paths import ROOT, lessons, read


@pytest.mark.parametrize("path", lessons(), ids=lambda p: p.stem)
def test_lesson_runs_and_its_compared_outputs_agree(path, record_property):
    command = [sys.executable, "-m", "pytest", "--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout=120",
               "-p", "no:randomly", "-p", "no:xdist", "-p", "no:cacheprovider", "-q", str(path)]
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=900, env=env)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    cells = [c for c in read(path).cells if c.cell_type == "code"]
    passed = int(re.search(r"(\d+) passed", done.stdout)[1])
    assert passed == sum(bool(c.source.strip()) for c in cells), "every code cell is run"
    compared = sum("nbval-check-output" in c.metadata.get("tags", []) for c in cells)
    record_property("notebooks", 1)
    record_property("compared cells", compared)


def test_a_changed_output_fails_the_comparison(tmp_path):
    path = lessons()[0]
    book = read(path)
    cell = next(c for c in book.cells if "nbval-check-output" in c.metadata.get("tags", []) and c.outputs)
    setup = [c for c in book.cells[: book.cells.index(cell)] if c.cell_type == "code"][:1]
    cell.outputs[0].text = cell.outputs[0].text.replace("MiB", "GiB")
    book.cells = [*setup, cell]
    import nbformat

    nbformat.write(book, tmp_path / "changed.ipynb")
    env = dict(os.environ, PYTHONPATH=str(ROOT))
    command = [sys.executable, "-m", "pytest", "--nbval-lax", "--nbval-current-env", "-p", "no:xdist", "-q",
               str(tmp_path / "changed.ipynb")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300, env=env)
    assert done.returncode == 1 and "1 failed" in done.stdout
