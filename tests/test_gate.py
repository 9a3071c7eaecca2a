"""The compile gate: every exported operator × configuration, compiled for every chip it is offered on, without one.

A configuration must fit into shared memory and spill nothing; dots must use tensor cores from sm_80 up
(on a T4 they are CUDA-core FMAs, as the lessons say); contiguous data must be loaded 16 bytes at a time.
"""

import importlib
import itertools

import pytest

from utils import aot
from utils.staff.paths import ROOT

CHIPS = sorted(aot.SHARED_LIMIT)
HALVES = (CHIPS[:3], CHIPS[3:])  # a compiling process for each, since each has to import torch first
MODULES = sorted(p.stem for p in (ROOT / "utils" / "ops").glob("[a-z]*.py") if p.stem != "base")
STEMS = {p.stem.split("_", 1)[1]: p.stem for p in (ROOT / "notebooks").glob("*.ipynb")}


def problems(op, rows: list[aot.Compiled], cc: int) -> list[str]:
    """What is wrong with the kernels that one configuration launched on one chip."""
    found = [f"{r.label} sm_{cc}: {r.error}" for r in rows if r.error]
    found += [f"{r.label} sm_{cc}: {r.kernel} needs {r.shared} bytes of shared memory" for r in rows if not r.fits]
    found += [f"{r.label} sm_{cc}: {r.kernel} spills ({r.stack} bytes of stack)" for r in rows if r.stack]
    units = {r.tensor_cores for r in rows} - {""}
    if op.dot and cc >= 80 and not units:
        found.append(f"{rows[0].label} sm_{cc}: no tensor-core instruction")
    if op.dot and cc == 75 and units:
        found.append(f"{rows[0].label} sm_75: uses {units}, but the lessons say that a T4 computes dots on CUDA cores")
    if op.vector and not any(r.wide_loads for r in rows):
        found.append(f"{rows[0].label} sm_{cc}: no 16-byte load")
    return found


@pytest.mark.parametrize("chips", HALVES, ids=lambda chips: "_".join(map(str, chips)))
@pytest.mark.parametrize("module", MODULES, ids=lambda m: STEMS[m])
def test_every_configuration_compiles_without_spills(module, chips, record_property):
    cases = {op.name: op for op in importlib.import_module(f"utils.ops.{module}").CASES}
    rows = aot.compile_operators(f"utils.ops.{module}", chips)
    found = []
    for cc in chips:
        left_out = {f"{name} ({c}): {c.why}": c.why
                    for name, op in cases.items() for c in op.configs if not c.offered(cc)}
        print(f"left out on sm_{cc}: " + ("; ".join(left_out) or "nothing"))
        assert all(left_out.values()), "what is left out says why"
        compiled = [row for row in rows if row.cc == cc]
        for label, group in itertools.groupby(compiled, key=lambda r: r.label):
            found += problems(cases[label.split(" (")[0]], list(group), cc)
        assert len({r.label for r in compiled}) == sum(c.offered(cc) for op in cases.values() for c in op.configs)
    assert not found, "\n".join(found)
    record_property("kernels compiled", len(rows))


def test_a_kernel_without_cases_is_noticed():
    for module in MODULES:
        text = (ROOT / "utils" / "ops" / f"{module}.py").read_text()
        assert "CASES = [" in text, f"{module} exports no CASES"


def test_planted_bad_configurations_fail_the_gate(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests"))
    monkeypatch.syspath_prepend(str(ROOT / "tests"))
    cases = {op.name: op for op in importlib.import_module("gate_planted").CASES}
    rows = aot.compile_operators("gate_planted", [90])
    said = {label.split(" (")[0]: " ".join(problems(cases[label.split(" (")[0]], list(group), 90))
            for label, group in itertools.groupby(rows, key=lambda r: r.label)}
    expected = {"spills": "spills", "too much shared memory": "shared memory", "no tensor cores": "no tensor-core",
                "narrow loads": "no 16-byte load", "does not compile": "sm_90: "}
    assert set(said) == set(expected)
    for name, words in expected.items():
        assert words in said[name], (name, said[name])
