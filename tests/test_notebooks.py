"""Every lesson runs from top to bottom on a CPU, and its machine-independent outputs are the stored ones."""

import os
import re
import subprocess
import sys

import nbformat
import pytest

from utils.staff.paths import ROOT, lessons, read

NBVAL = ["--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout=120", "-p", "no:randomly", "-p", "no:xdist",
         "-p", "no:cacheprovider", "-q"]


@pytest.mark.parametrize("path", lessons(), ids=lambda p: p.stem)
def test_lesson_runs_and_its_compared_outputs_agree(path, record_property):
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    done = subprocess.run([sys.executable, "-m", "pytest", *NBVAL, str(path)], capture_output=True, text=True,
                          cwd=ROOT, timeout=900, env=env)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    cells = [c for c in read(path).cells if c.cell_type == "code"]
    passed = int(re.search(r"(\d+) passed", done.stdout)[1])
    assert passed == sum(bool(c.source.strip()) for c in cells), "every code cell is run"
    compared = sum("nbval-check-output" in c.metadata.get("tags", []) for c in cells)
    record_property("notebooks", 1)
    record_property("compared cells", compared)


@pytest.mark.parametrize("changed", [False, True])
def test_a_changed_output_fails_the_comparison(changed, tmp_path):
    book = read(lessons()[0])
    cell = next(c for c in book.cells if "nbval-check-output" in c.metadata.get("tags", []) and c.outputs)
    if changed:
        cell.outputs[0].text = cell.outputs[0].text.replace("MiB", "GiB")
    book.cells = [cell]
    nbformat.write(book, tmp_path / "one_cell.ipynb")
    done = subprocess.run([sys.executable, "-m", "pytest", *NBVAL, str(tmp_path / "one_cell.ipynb")],
                          capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == int(changed), done.stdout
    assert ("1 failed" if changed else "1 passed") in done.stdout
