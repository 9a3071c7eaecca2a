"""`make check LESSON=01`: the checks of one lesson, its lab and its kernels."""

import subprocess
import sys

from utils.staff.paths import ROOT, lesson, main


def one(number: str = "") -> int:
    """Run every test whose name carries the lesson's stem."""
    stem = lesson(number).stem
    return subprocess.run([sys.executable, "-m", "pytest", "-n", "2", "-q", "-k", stem], cwd=ROOT).returncode


if __name__ == "__main__":
    main(one)
