"""The roofline model in closed form, where roofs come from, and what is recorded."""

import datetime
import json
import math

import pandas as pd
import pytest

from utils import bench, record, roofline
from utils.cost import Work
from utils.roofline import Machine

GIGA = 1e9
TOY = Machine("toy", copy=100 * GIGA, read=125 * GIGA, peak={"fp32": 1000 * GIGA, "fp16": 8000 * GIGA})
L2 = 60e6  # bytes: less than this may come from the cache


# --- closed forms --------------------------------------------------------------------------------

@pytest.mark.parametrize("flops, nbytes, gflops, us, wall", [
    (0, 1e6, 0, 10, "copy"),  # nothing but bytes
    (1e6, 1e6, 100, 10, "copy"),  # 1 FLOP/B
    (10e6, 1e6, 1000, 10, "copy"),  # the ridge: both walls at once
    (40e6, 1e6, 1000, 40, "fp32"),
    (40e6, 0, 1000, 40, "fp32"),  # nothing but FLOPs
    (0, 0, 0, 0, "copy")])
def test_attainable_time_and_wall_are_those_of_the_slower_limit(flops, nbytes, gflops, us, wall):
    work = Work(flops, nbytes, "fp32", "copy")
    assert TOY.attainable(work) == pytest.approx(gflops * GIGA)
    assert TOY.time_floor(work) == pytest.approx(us)
    assert TOY.wall(work) == wall


def test_attainable_is_the_work_over_its_smallest_time():
    for flops in (1e3, 1e6, 1e7, 1e9):
        for dtype in ("fp32", "fp16"):
            work = Work(flops, 1e6, dtype, "read")
            assert TOY.attainable(work) == pytest.approx(flops / TOY.time_floor(work) * 1e6)


def test_work_that_hardly_writes_stands_under_the_read_roof():
    work = Work(1e6, 1e6, "fp32", "read")
    assert TOY.attainable(work) == pytest.approx(125 * GIGA) and TOY.time_floor(work) == pytest.approx(8)
    assert TOY.wall(work) == "read"


def test_the_ridge_is_where_the_two_roofs_meet():
    assert TOY.ridge("fp32") == 10 and TOY.ridge("fp16") == 80 and TOY.ridge("fp16", "read") == 64
    for roof in ("copy", "read"):
        left, right = (Work(TOY.ridge("fp16", roof) * share, 1, "fp16", roof) for share in (0.99, 1.01))
        assert TOY.wall(left) == roof and TOY.wall(right) == "fp16"


def test_without_tensor_cores_the_roof_is_that_of_the_cuda_cores():
    work = Work(40e6, 1e6, "fp16", "copy")
    assert TOY.attainable(work) == pytest.approx(4000 * GIGA) and TOY.wall(work) == "copy"
    assert TOY.attainable(work, cuda_cores=True) == pytest.approx(1000 * GIGA)
    assert TOY.wall(work, cuda_cores=True) == "fp32" and TOY.time_floor(work, cuda_cores=True) == pytest.approx(40)


def test_an_unknown_compute_roof_is_named():
    with pytest.raises(ValueError, match=r"toy has no fp8 roof; known are fp16, fp32\."):
        TOY.attainable(Work(1, 1, "fp8"))
    assert TOY.time_floor(Work(0, 1e6, "fp8")) == pytest.approx(10), "a copy needs no compute roof"


# --- datasheets ----------------------------------------------------------------------------------

def test_every_datasheet_has_its_roofs_in_order():
    for name in ("T4", "L4", "A100", "H100", "H200", "B200"):
        sheet = Machine.datasheet(name)
        assert sheet.source == "datasheet" and sheet.copy == sheet.read
        assert 100 * GIGA < sheet.copy < 10000 * GIGA, "bytes a second"
        assert 1e12 < sheet.peak["fp32"] < sheet.peak["fp16"] < sheet.peak["int8"] < 1e16, "FLOP a second"
    assert Machine.datasheet("T4").copy == 320 * GIGA and "bf16" not in Machine.datasheet("T4").peak
    assert Machine.datasheet("H200").peak["bf16"] == 989e12 and Machine.datasheet("H200").copy == 4800 * GIGA


def test_an_unknown_datasheet_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match=r"^no datasheet for 'V100'; known are T4, L4, A100, H100, H200, B200\.$"):
        Machine.datasheet("V100")


@pytest.mark.parametrize("name, sheet", [
    ("NVIDIA H200", "H200"), ("Tesla T4", "T4"), ("NVIDIA A100-SXM4-80GB", "A100"), ("NVIDIA L4", "L4"),
    ("NVIDIA L40S", None), ("NVIDIA GeForce RTX 4090", None), ("CPU, 4 cores, x86_64", None)])
def test_a_devices_name_finds_its_datasheet_and_no_other(name, sheet):
    found = roofline.datasheet_of(name)
    assert found == (Machine.datasheet(sheet) if sheet else None)


# --- measured roofs are kept ---------------------------------------------------------------------

@pytest.fixture
def measure(tmp_path, monkeypatch):
    """A stand-in for a measurement that counts how often it ran, and a cache file of its own."""
    monkeypatch.setattr(roofline, "CACHE", tmp_path / "cache" / "machine.json")

    def run() -> Machine:
        run.times += 1
        return Machine("stand-in", 1.0 * run.times, 2.0, {"fp32": 3.0})

    run.times = 0
    monkeypatch.setattr(roofline, "_measure_cpu", run)
    return run


def test_a_machine_is_measured_once(measure):
    first = Machine.measured_cpu()
    assert Machine.measured_cpu() == first and measure.times == 1
    assert Machine.measured_cpu(refresh=True).copy == 2.0 and Machine.measured_cpu().copy == 2.0 and measure.times == 2


@pytest.mark.parametrize("text", ["", "{", "[]", "[1, 2]", "null", "3", "\xff", "HERE []", 'HERE {"name": "old"}',
                                  'HERE {"speed": 1}'])
@pytest.mark.parametrize("refresh", [False, True])
def test_a_broken_cache_file_is_measured_again(measure, text, refresh):
    Machine.measured_cpu()
    key = next(iter(json.loads(roofline.CACHE.read_text())))
    text = text.replace("HERE", json.dumps({key: "?"}).replace('"?"}', "")) + ("}" if "HERE" in text else "")
    roofline.CACHE.write_bytes(text.encode("latin-1"))
    assert Machine.measured_cpu(refresh) == Machine("stand-in", 2.0, 2.0, {"fp32": 3.0}) and measure.times == 2
    assert Machine.measured_cpu().copy == 2.0 and measure.times == 2, "and kept"


def test_measuring_one_machine_keeps_the_others(measure):
    here = Machine.measured_cpu()
    roofline._kept("another GPU", lambda: TOY, refresh=False)
    roofline._kept("a third", lambda: TOY, refresh=True)
    assert Machine.measured_cpu() == here and measure.times == 1
    assert roofline._kept("another GPU", lambda: pytest.fail("measured again"), refresh=False) == TOY


# --- recorded rows -------------------------------------------------------------------------------

FILES = sorted(record.RECORDED.glob("*.csv"))


def table(path) -> pd.DataFrame:
    return pd.read_csv(path, keep_default_na=False, na_values=[""], dtype=record.TEXT)


def points(path) -> pd.DataFrame:
    return table(path).query("operator != 'roof'")


def test_something_is_recorded():
    assert FILES and all(len(points(path)) for path in FILES)


def test_a_missing_gpu_or_lesson_is_named():
    with pytest.raises(ValueError, match=r"nothing is recorded for the GPU 'nvidia-h9'; recorded are: .*nvidia-h200"):
        Machine.recorded("nvidia-h9")
    with pytest.raises(ValueError, match=r"nvidia-h200\.csv holds no rows of lesson '99_none', operator 'roof'\."):
        Machine.recorded(lesson="99_none")
    with pytest.raises(ValueError, match=r"no rows of lesson '01_roofline', operator 'none'\."):
        record.load("01_roofline", "none")


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_recorded_columns_are_the_agreed_ones(path):
    assert table(path).columns.tolist() == record.COLUMNS
    assert path.read_text().endswith("\n") and "\r" not in path.read_text()


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_every_recorded_row_says_where_and_when(path):
    rows = table(path)
    assert rows[["lesson", "operator", "implementation", "gpu", "torch", "triton", "date"]].notna().all().all()
    assert (rows.gpu.map(record.slug) == path.stem).all()
    assert all(datetime.date.fromisoformat(date).isoformat() == date for date in rows.date)
    assert all(len(version.split(".")) >= 2 and version[0].isdigit() for version in (*rows.torch, *rows.triton))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_every_recorded_time_lies_between_its_percentiles(path):
    rows = table(path)
    assert ((0 < rows.us_p20) & (rows.us_p20 <= rows.us) & (rows.us <= rows.us_p80)).all()
    assert (rows[["flops", "bytes"]] >= 0).all().all()


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_no_recorded_point_lies_above_its_roof_unless_the_cache_held_it(path):
    """Compute roofs are raised by whoever beat them; memory roofs leave 5 % for two reads a write."""
    for lesson, rows in points(path).groupby("lesson"):
        machine = Machine.recorded(path.stem, lesson)
        memory = rows[rows.roof.isin(["copy", "read"]) & (rows.bytes >= L2)]
        above = memory[memory.roof_fraction > 1.05]
        assert above.empty, above[["operator", "implementation", "shape", "roof_fraction"]].to_string()
        for row in rows[rows.roof.isin(machine.peak)].itertuples():
            assert row.flops / row.us * 1e6 <= machine.peak[row.roof] * (1 + 1e-9), row


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_recorded_shares_are_those_of_the_roofs_measured_in_the_same_run(path):
    table = pd.read_csv(path)
    for lesson, rows in points(path).groupby("lesson"):
        roofs = table[(table.lesson == lesson) & (table.operator == "roof")]
        rates = dict(zip(roofs.implementation, (roofs.bytes + roofs.flops) / roofs.us * 1e6))
        assert rates["read"] >= rates["copy"] > 0
        for row in rows[rows.roof_fraction.notna()].itertuples():
            done = row.bytes if row.roof in ("copy", "read") else row.flops
            assert done / row.us * 1e6 / rates[row.roof] == pytest.approx(row.roof_fraction, rel=2e-3), row


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_recorded_libraries_are_told_from_the_courses_kernels(path):
    rows = points(path)
    assert (rows.library == rows.implementation.map(bench.is_library)).all()
    key = ["lesson", "operator", "shape", "dtype", "roof"]
    for _, group in rows[rows.vs_best_library.notna()].groupby(key, dropna=False):
        best = group[group.library].us.min()
        assert not math.isnan(best) and (group.vs_best_library - best / group.us).abs().max() < 2e-3


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_no_recorded_measurement_is_a_copy_of_another(path):
    rows = points(path)
    rows = rows[rows.operator != "seven ways"]  # one right time stands beside several wrong ones
    twice = rows[rows.duplicated(["us", "us_p20", "us_p80", "bytes", "flops"], keep=False)]
    assert twice.empty, twice[["lesson", "operator", "implementation", "shape", "us"]].to_string()
    assert not rows.duplicated(["lesson", "operator", "implementation", "shape", "dtype"]).any()
