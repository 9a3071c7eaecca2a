"""A graded lab as JSON, text, table and Markdown. Only what the submissions and the seed decide is in them."""

import html
import json
import re
from pathlib import Path
from typing import Any

import pandas as pd


def summary(exercise: dict[str, Any]) -> dict[str, Any]:
    """State, points and first failing check of one exercise from its checks."""
    failing = next((c for c in exercise["checks"] if c["state"] != "passed"), None)
    return exercise | {"state": failing["state"] if failing else "passed",
                       "points": sum(c["points"] for c in exercise["checks"]),
                       "of": sum(c["of"] for c in exercise["checks"]),
                       "message": failing["message"] if failing else ""}


def as_json(report: dict[str, Any]) -> str:
    return json.dumps(report, sort_keys=True, indent=1, ensure_ascii=False) + "\n"


def number(points: float) -> str:
    return f"{points:g}"


def as_text(one: dict[str, Any], report: dict[str, Any]) -> str:
    """What a student or teacher reads on the screen."""
    lines = [f"{report['lab']}: {one['file']} (seed {report['seed']}, at most {report['limit']} s an exercise)"]
    if one["problem"]:
        return "\n".join([*lines, f"  could not be graded: {one['problem']}"])
    for exercise in one["exercises"]:
        points = f"{number(exercise['points'])}/{number(exercise['of'])}"
        lines.append(f"  {exercise['name']:<5} {exercise['state']:<10} {points:>6}  {exercise['message']}".rstrip())
    lines += [f"  note: {note}." for note in one["notes"]]
    return "\n".join([*lines, f"  {number(one['points'])} of {number(report['points'])} points"])


def table(report: dict[str, Any]) -> pd.DataFrame:
    """A row a submission, a column an exercise."""
    rows = []
    for one in report["submissions"]:
        row = {"student": one["student"], "file": one["file"], "points": one["points"]}
        for name in report["exercises"]:
            exercise = next((e for e in one["exercises"] if e["name"] == name), None)
            row[name] = exercise["points"] if exercise else None
            row[f"{name} state"] = exercise["state"] if exercise else None
        rows.append(row | {"problem": one["problem"]})
    return pd.DataFrame(rows)


def as_csv(report: dict[str, Any]) -> str:
    """The table, quoted; what a spreadsheet would take for a formula is defused."""
    frame = table(report).map(lambda v: "'" + v if isinstance(v, str) and re.match(r"\s*[=+\-@\t\r]", v) else v)
    return frame.to_csv(index=False, quoting=2, float_format="%g", lineterminator="\n")


def as_markdown(one: dict[str, Any], report: dict[str, Any]) -> str:
    """What is handed back to one student."""
    lines = [f"# {_escape(report['lab'])}: {_escape(one['student'])}", ""]
    if one["problem"]:
        return "\n".join([*lines, f"`{_code(one['file'])}` could not be graded: {_escape(one['problem'])}", ""])
    lines += [f"**{number(one['points'])} of {number(report['points'])} points** for `{_code(one['file'])}`, "
              f"seed {report['seed']}", "", "| exercise | state | points | look at first |", "|---|---|---|---|"]
    for e in one["exercises"]:
        points = f"{number(e['points'])} of {number(e['of'])}"
        lines.append(f"| {e['name']} | {e['state']} | {points} | {_escape(e['message'])} |")
    notes = [f"- {_escape(note)}" for note in one["notes"]]
    return "\n".join([*lines, *(["", *notes] if notes else []), ""])


def _escape(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]()#+!|~>])", r"\\\1", html.escape(text, quote=False)).replace("\n", " ")


def _code(text: str) -> str:
    return text.replace("`", "'").replace("\n", " ")


def write(report: dict[str, Any], timings: dict[str, float], folder: Path) -> None:
    """report.json, grades.csv, timings.json and a Markdown page a submission, all in `folder`."""
    pages = folder / "students"
    pages.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(as_json(report), encoding="utf-8")
    (folder / "grades.csv").write_text(as_csv(report), encoding="utf-8")
    (folder / "timings.json").write_text(json.dumps(timings, indent=1, sort_keys=True) + "\n")
    taken: set[str] = set()
    for one in report["submissions"]:
        name = re.sub(r"[^\w.-]+", "_", one["student"]).strip("._") or "student"
        while name.lower() in taken:
            name += "_2"
        taken.add(name.lower())
        (pages / f"{name}.md").write_text(as_markdown(one, report), encoding="utf-8")
