"""`make matrix`: the interpreter's tests on other pairs of Triton and NumPy.

Each pair gets a small environment of its own under .venv-matrix/, laid over the course's: only triton and
numpy differ. A pair that cannot be installed here is named and counts as failed.
"""

import os
import subprocess
import sysconfig
import venv
from pathlib import Path

from utils.staff.paths import ROOT, main

# What Colab has, what the course is tested with, and the newest.
PAIRS = {"colab": ("triton==3.6.0", "numpy==2.1.3"), "course": ("triton==3.7.1", "numpy<2.5"),
         "newest": ("triton==3.9.0", "numpy")}
TESTS = ["tests/test_check.py", "tests/test_aot.py"]


def environment(name: str, requirements: tuple[str, ...]) -> Path:
    """The python of the pair's environment, made if it is not there."""
    folder = ROOT / ".venv-matrix" / name
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        venv.create(folder, with_pip=True, clear=True)
        site = next((folder / "lib").glob("python*/site-packages"))
        pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *requirements]
        subprocess.run(pip, check=True, cwd=ROOT)
        (site / "course.pth").write_text(sysconfig.get_path("purelib"))  # everything else comes from the course's own
        (folder / "ready").touch()
    return python


def matrix() -> int:
    """Run TESTS on every pair; prints a line for each, returns 1 if one failed."""
    failed = 0
    for name, requirements in PAIRS.items():
        try:
            python = environment(name, requirements)
        except subprocess.CalledProcessError:
            print(f"{name}: {' and '.join(requirements)} cannot be installed here", flush=True)
            failed += 1
            continue
        env = dict(os.environ, PYTHONPATH=str(ROOT))
        versions = "import triton, numpy, torch; print('triton', triton.__version__, 'numpy', numpy.__version__)"
        said = subprocess.run([str(python), "-c", versions], env=env, capture_output=True, text=True).stdout.strip()
        done = subprocess.run([str(python), "-m", "pytest", "-q", "-n", "2", *TESTS], cwd=ROOT, env=env,
                              capture_output=True, text=True)
        last = (done.stdout.strip().splitlines() or [done.stderr.strip()[-200:]])[-1]
        print(f"{name}: {said}: {last}", flush=True)
        if done.returncode:
            print(done.stdout[-3000:])
            failed += 1
    return int(failed > 0)


if __name__ == "__main__":
    main(matrix)
