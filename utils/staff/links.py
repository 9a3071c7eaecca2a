"""The one place that knows where the course lives, and the texts that are made from it.

`make sync` rewrites every badge and setup cell from `[tool.course]` in pyproject.toml.
"""

import re
import tomllib

import nbformat

from utils.staff.paths import ROOT

SETUP = '''\
# Setup: finds the course and says where you are. Safe to run again.
import subprocess, sys
from pathlib import Path
if "google.colab" in sys.modules and not Path("/content/course").exists():  # on Colab: fetch the course, install nothing
    subprocess.run(["git", "clone", "-q", "--depth=1", "--branch={tag}", "https://github.com/{repository}", "/content/course"], check=True)
root = next((p for p in (Path.cwd(), *Path.cwd().parents, Path("/content/course")) if (p / "utils/device.py").exists()), None)
if root is None:
    raise FileNotFoundError("The course's folder was not found: open this notebook inside a checkout of the course.")
sys.path[:0] = [str(root)] if str(root) not in sys.path else []
import utils
print(utils.device.banner())'''


def course() -> dict[str, str]:
    """{"repository": "owner/name", "tag": …} from pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["course"]


def setup_cell() -> str:
    """The source of the setup cell, the same in every lesson and lab."""
    return SETUP.format(**course())


def badge(path: str) -> str:
    """Markdown of the Colab badge that opens `path` ("notebooks/01_roofline.ipynb")."""
    where = course()
    return (f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]"
            f"(https://colab.research.google.com/github/{where['repository']}/blob/{where['tag']}/{path})")


_BADGE = re.compile(r"\[!\[Open in Colab\]\([^)]*\)\]\(https://colab[^)]*\)")


def relink(book: nbformat.NotebookNode, path: str) -> None:
    """Set the setup cell and the badge of a notebook stored at `path`, in place."""
    for cell in book.cells:
        if cell.cell_type == "code" and cell.source.startswith("# Setup:"):
            cell.source = setup_cell()
        elif cell.cell_type == "markdown":
            cell.source = _BADGE.sub(lambda _: badge(path), cell.source)


def relink_text(text: str) -> str:
    """Set the badges of a Markdown page: each opens the notebook that the old one named."""
    return _BADGE.sub(lambda m: badge(re.search(r"((?:notebooks|labs)/[\w.]+\.ipynb)", m[0])[1]), text)
