"""A copy of the course for tests that change files, and Python in a process of its own."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from utils.staff.paths import ROOT

_OURS = ("TRITON_INTERPRET", "COURSE_RECORD", "COURSE_SEED", "COURSE_ANSWERS", "PYTHONPATH")


def files() -> list[str]:
    """Every file of the course that git tracks or would track."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True,
                            text=True, check=True).stdout
    return sorted(name for name in listed.split("\0") if name and (ROOT / name).is_file())


def copy_to(target: Path) -> Path:
    """Copy the course to `target`; returns it."""
    for name in files():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target / name)
    return target


def contents(root: Path) -> dict[str, bytes]:
    """path → bytes of every file below `root`, caches left out."""
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob("*"))
            if p.is_file() and "__pycache__" not in p.parts}


def python(*args: str, cwd: Path = ROOT, env: Mapping[str, str] | None = None, executable: str = sys.executable,
           timeout: float = 300) -> subprocess.CompletedProcess:
    """Run Python without a GPU and without the settings that importing utils has made here."""
    clean = {k: v for k, v in os.environ.items() if k not in _OURS}
    clean |= {"CUDA_VISIBLE_DEVICES": "", "PYTHONDONTWRITEBYTECODE": "1", "MPLBACKEND": "Agg"}
    return subprocess.run([executable, *args], cwd=cwd, env=clean | dict(env or {}), capture_output=True, text=True,
                          timeout=timeout)


def is_one_sentence(text: str) -> bool:
    """One line that starts like a sentence and ends like one; no traceback."""
    return bool(text.strip()) and "\n" not in text.strip() and len(text) < 400 and text.strip()[-1] in ".:)!?"
