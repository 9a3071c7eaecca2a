"""Arrows only point down: notebooks, utils, utils.ops, torch and triton; no learner's module knows utils.staff."""

import ast

from utils.staff.paths import LABS, NOTEBOOKS, ROOT, read


def imported(text: str) -> set[str]:
    """Dotted names of everything imported anywhere in a Python text."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def test_operators_import_no_other_part_of_utils():
    for path in (ROOT / "utils" / "ops").glob("*.py"):
        names = {n for n in imported(path.read_text()) if n.split(".")[0] == "utils"}
        assert all(n.startswith("utils.ops.") for n in names), (path.name, names)


def test_nothing_that_a_learner_imports_knows_the_staff():
    for path in [*(ROOT / "utils").glob("*.py"), *(ROOT / "utils" / "ops").glob("*.py")]:
        assert not any("staff" in n for n in imported(path.read_text())), path.name
    for path in [*NOTEBOOKS.glob("*.ipynb"), *LABS.glob("*.ipynb")]:
        for cell in read(path).cells:
            if cell.cell_type == "code":
                assert not any("utils.staff" in n for n in imported(cell.source)), path.name
