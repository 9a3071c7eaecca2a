"""The glossary is sorted, has no term twice, links only to what exists, and knows the Chinese names of the lessons."""

import re

from utils.staff.paths import ROOT, lessons, read

GLOSSARY = (ROOT / "GLOSSARY.md").read_text(encoding="utf-8")
LINES = [line for line in GLOSSARY.splitlines() if line.startswith("|")][2:]  # without the table's head
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in LINES]
TERMS = [row[0].casefold() for row in ROWS]
CHINESE = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]+")


def test_every_row_has_a_term_a_chinese_name_a_sentence_and_a_lesson():
    assert ROWS
    for row in ROWS:
        assert len(row) == 4 and all(row) and CHINESE.search(row[1]) and row[2].endswith("."), row
        assert re.fullmatch(r"\[\d\d\]\(notebooks/\d\d_\w+\.ipynb\)|\d\d, planned", row[3]), row


def test_rows_are_sorted():
    assert TERMS == sorted(TERMS)


def test_no_term_stands_twice():
    assert len(TERMS) == len(set(TERMS))


def test_every_link_points_to_an_existing_file():
    links = re.findall(r"\]\(([^)#]+)", GLOSSARY)
    assert links and not [link for link in links if not (ROOT / link).is_file()]


def test_every_chinese_name_in_a_lesson_is_in_the_glossary():
    for path in lessons():
        text = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "markdown")
        missing = [name for name in CHINESE.findall(text) if not any(name in row[1] for row in ROWS)]
        assert not missing, f"{path.name}: {missing}"
