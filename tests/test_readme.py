"""The two READMEs say the same, promise only what is there, and mark what is not."""

import re

import pytest

from utils.staff.paths import ROOT

PLANNED = {"README.md": "planned", "README.zh.md": "计划中"}
TEXT = {name: (ROOT / name).read_text(encoding="utf-8") for name in PLANNED}
both = pytest.mark.parametrize("name", PLANNED)


def links(name: str) -> set[str]:
    return set(re.findall(r"\]\(([^)\s]+)\)", TEXT[name]))


def test_both_languages_link_to_each_other_and_else_to_the_same():
    english, chinese = links("README.md"), links("README.zh.md")
    assert "README.zh.md" in english and "README.md" in chinese
    assert english - {"README.zh.md"} == chinese - {"README.md"}


def test_both_languages_name_the_same_commands():
    blocks, spans = ([re.findall(rule, TEXT[name], re.M) for name in PLANNED]
                     for rule in (r"^ {4}(\S.*?) *(?:#.*)?$", r"`([^`\n]+)`"))
    assert blocks[0] and blocks[0] == blocks[1] and sorted(spans[0]) == sorted(spans[1])


@both
def test_a_lesson_is_linked_if_it_exists_and_marked_planned_if_not(name):
    rows = re.findall(r"^\| (\d\d) \|(.*)$", TEXT[name], re.M)
    assert [number for number, _ in rows] == [f"{n:02}" for n in range(1, 16)]
    for number, row in rows:
        books = [f"notebooks/{path.name}" for path in (ROOT / "notebooks").glob(f"{number}_*.ipynb")]
        assert re.findall(r"\]\((notebooks/[^)]+)\)", row) == books, number
        assert (PLANNED[name] in row) == (not books), number


@both
def test_every_relative_link_and_make_target_exists(name):
    assert not [link for link in links(name) if "://" not in link and not (ROOT / link.split("#")[0]).exists()]
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert set(re.findall(r"(?:`|^ {4})make (\w+)", TEXT[name], re.M)) <= set(targets)
