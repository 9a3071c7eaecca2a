"""Where kernels run is decided once, before triton is imported; without triton the NumPy half works."""

import json

import pytest
from tree import copy_to, is_one_sentence, python

from utils import device
from utils.staff.paths import ROOT, lessons, read

# Python that finds no triton, however it is installed: the finder of files passes over it.
WITHOUT_TRITON = '''
import importlib.machinery, importlib.metadata, sys
class Finder:
    find_spec = staticmethod(lambda name, path=None, target=None: None if name.split(".")[0] == "triton" else
                             importlib.machinery.PathFinder.find_spec(name, path, target))
sys.meta_path[:] = [Finder if f is importlib.machinery.PathFinder else f for f in sys.meta_path]
version = importlib.metadata.version
def without(package):
    if package == "triton":
        raise importlib.metadata.PackageNotFoundError(package)
    return version(package)
importlib.metadata.version = without
'''


# Runs pieces of code, each in a fork of a process that has imported what is slow and no triton.
FORKS = '''
import json, os, sys, traceback
import matplotlib.pyplot, pandas, torch
assert "triton" not in sys.modules
for i, (setting, code) in enumerate(json.loads(sys.argv[1])):
    if os.fork() == 0:
        for stream, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{i}.{name}", os.O_WRONLY | os.O_CREAT), stream)
        os.environ.update({} if setting is None else {"TRITON_INTERPRET": setting})
        try:
            exec(code, {})
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush(), sys.stderr.flush(), os._exit(0)
    os.wait()
'''


def forked(jobs: list[tuple[str | None, str]], folder) -> list[tuple[str, str]]:
    """What each (TRITON_INTERPRET or None, code) printed, and the last line of its errors."""
    done = python("-c", FORKS, json.dumps(jobs), cwd=folder, env={"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    texts = [[(folder / f"{i}.{name}").read_text().strip() for name in ("out", "err")] for i in range(len(jobs))]
    return [(out, (err.splitlines() or [""])[-1]) for out, err in texts]


# --- the interpreter is switched on --------------------------------------------------------------

REPORT = """import sys, utils, os
assert "triton" not in sys.modules, "importing utils imports no triton"
d = utils.device
print(os.environ["TRITON_INTERPRET"], os.environ["TRITON_DEFAULT_FP_FUSION"], d.INTERPRET, d.ON_GPU, d.DEVICE, d.DTYPE)
print(d.banner())
d.need_triton()"""


def test_the_interpreter_is_on_without_a_gpu_and_a_setting_by_hand_is_left_as_it_is(tmp_path):
    unset, zero, one = forked([(None, REPORT), ("0", REPORT), ("1", REPORT)], tmp_path)
    for out, error in (unset, one):
        assert out.splitlines()[0] == "1 1 True False cpu torch.float16" and error == ""
        assert "kernels run in Triton's interpreter" in out.splitlines()[1]
    out, error = zero
    assert out.splitlines()[0] == "0 1 False False cpu torch.float16" and "kernels cannot run" in out.splitlines()[1]
    assert error.startswith("RuntimeError: There is no CUDA device and TRITON_INTERPRET=0 was set by hand")
    assert is_one_sentence(error)


def test_triton_imported_first_is_answered_with_restart_the_kernel(tmp_path):
    first = "import triton, utils; print('fine')"
    (out, error), in_time, by_hand = forked([(None, first), ("1", first), ("0", first)], tmp_path)
    assert error.startswith("RuntimeError: triton was imported before utils") and "restart the kernel" in error
    assert is_one_sentence(error) and out == ""
    assert in_time == by_hand == ("fine", ""), "the setting was there in time"


def test_a_setting_changed_after_the_import_is_answered_with_restart_the_kernel(monkeypatch):
    device.need_triton()
    monkeypatch.setenv("TRITON_INTERPRET", "0" if device.INTERPRET else "1")
    with pytest.raises(RuntimeError, match="restart the kernel"):
        device.need_triton()


def test_pick_gives_the_size_for_this_machine():
    assert device.pick(gpu="large", cpu="small") == ("large" if device.ON_GPU else "small")


# --- without triton ------------------------------------------------------------------------------

def test_without_triton_utils_works_and_kernels_are_refused_with_one_sentence():
    code = WITHOUT_TRITON + '''
import utils
from utils import aot, bench, check, cost, lab, plots, record, roofline
import torch
check.agree(torch.ones(3), torch.ones(3).double())
print(utils.device.banner())
try:
    import triton
except ModuleNotFoundError:
    print("no triton")
utils.device.need_triton()'''
    done = python("-c", code)
    assert "no triton: NumPy half only" in done.stdout and done.stdout.endswith("no triton\n"), done.stderr
    text = done.stderr.strip().splitlines()[-1]
    assert text.startswith("RuntimeError: Triton is not installed here") and "Linux, WSL2 or Colab" in text
    assert is_one_sentence(text)


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A copy of the course, so that what the cells cache is not left behind."""
    return copy_to(tmp_path_factory.mktemp("course"))


RUN_CELLS = WITHOUT_TRITON + '''
import json
names = {"__name__": "__main__"}
for i, source in enumerate(json.loads(open(sys.argv[1]).read())):
    try:
        exec(compile(source, f"<cell {i}>", "exec"), names)
    except Exception as error:
        print(f"\\ncell {i}: {type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(3)
'''


@pytest.mark.parametrize("path", lessons(), ids=lambda p: p.stem)
def test_the_first_five_steps_run_without_triton_and_the_sixth_stops_with_one_sentence(path, course, tmp_path):
    sources = [cell.source for cell in read(path).cells if cell.cell_type == "code"]
    stop = next(i for i, source in enumerate(sources) if "device.need_triton()" in source)
    assert stop >= 5, "what comes before the kernels"
    (tmp_path / "cells.json").write_text(json.dumps(sources[: stop + 1]))
    done = python("-c", RUN_CELLS, str(tmp_path / "cells.json"), cwd=course / "notebooks")
    assert done.returncode == 3, done.stderr[-2000:]
    text = done.stderr.strip().splitlines()[-1]
    assert text.startswith(f"cell {stop}: RuntimeError: Triton is not installed here") and is_one_sentence(text)


# --- pairs of versions ---------------------------------------------------------------------------

@pytest.mark.parametrize("triton, numpy, cc, interpret, words", [
    (None, "2.4.6", 0, True, "not installed"),
    (None, "2.4.6", 90, False, "not installed"),
    ("3.6.0", "2.4.0", 0, True, "pip install 'numpy<2.4'"),
    ("3.5.1", "2.5.0", 0, True, "pip install 'numpy<2.4'"),
    ("3.6.0+git1a2b", "2.4.0rc1", 75, True, "pip install 'numpy<2.4'"),
    ("3.6.0", "2.4.0", 90, False, None),
    ("3.6.0", "2.3.5", 0, True, None),
    ("3.7.1", "2.4.6", 0, True, None),
    ("3.10.0", "2.10.0", 0, True, None),
    ("3.3.1", "2.2.0", 75, False, "install 3.4 or newer"),
    ("3.4.0", "2.2.0", 75, False, None),
    ("3.3.1", "2.2.0", 80, False, None),
    ("3.7.1", "2.4.6", 70, False, "capability 7.0"),
    ("3.7.1", "2.4.6", 61, False, "capability 6.1"),
    ("3.7.1", "2.4.6", 75, False, None)])
def test_pairs_that_cannot_run_kernels_are_known(triton, numpy, cc, interpret, words):
    problem = device.pair_problem(triton, numpy, cc, interpret)
    if words is None:
        assert problem is None
    else:
        assert words in problem and is_one_sentence(problem)
