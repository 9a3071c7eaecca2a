"""`make lab` and `make reset`: a working copy of the notebooks that is never overwritten."""

import os
import shutil
import subprocess
import sys
import time
import webbrowser
from pathlib import Path

from utils.staff.paths import LABS, NOTEBOOKS, ROOT, WORK, Problem, lesson, main


def fill() -> list[Path]:
    """Copy what is not yet in work/; returns what was copied."""
    made = []
    for folder in (NOTEBOOKS, LABS):
        target = WORK / folder.name
        target.mkdir(parents=True, exist_ok=True)
        for path in sorted(folder.glob("*.ipynb")):
            if not (target / path.name).exists():
                shutil.copyfile(path, target / path.name)
                made.append(target / path.name)
    return made


def open_lab() -> int:
    """Open JupyterLab on the first lesson of the working copy; without a browser the URL is printed."""
    made = fill()
    print(f"working copy: work/ ({len(made)} notebooks copied, the others are as you left them)", flush=True)
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={WORK}",
               "--LabApp.default_url=/lab/tree/notebooks/01_roofline.ipynb"]
    command.append("--log-level=WARN")  # the URL is printed all the same
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    try:
        webbrowser.get()
    except webbrowser.Error:
        command.append("--no-browser")
        print("no browser was found: open the URL that follows", flush=True)
    try:
        return subprocess.run(command, cwd=ROOT).returncode
    except KeyboardInterrupt:
        return 0


def reset(number: str = "") -> int:
    """Put a fresh copy of a lesson and its lab into work/; your versions are kept as backups."""
    path = lesson(number)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for folder in (NOTEBOOKS, LABS):
        source, target = folder / path.name, WORK / folder.name / path.name
        if not source.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            backup = target.with_name(f"{target.stem}.{stamp}.backup.ipynb")
            if backup.exists():
                raise Problem(f"the backup {backup.name} exists already: wait a second and try again.")
            target.rename(backup)
            print(f"your version is kept as {backup.relative_to(ROOT)}")
        shutil.copyfile(source, target)
        print(f"fresh copy: {target.relative_to(ROOT)}")
    return 0


def command(name: str = "", *args: str) -> int:
    """`open` or `reset NN`."""
    if name == "reset" and len(args) < 2:
        return reset(*args)
    if name == "open" and not args:
        return open_lab()
    raise Problem(f"{' '.join((name, *args))!r} is no command: say open, or reset and a lesson's number.")


if __name__ == "__main__":
    main(command)
