"""The timer on a CPU, the table of contestants, and the rows that are written down."""

import time

import pandas as pd
import pytest
import torch

from utils import bench, cost, device, record
from utils.bench import Timing
from utils.cost import Work
from utils.roofline import Machine

pytestmark = pytest.mark.skipif(device.ON_GPU, reason="what a CPU does")
TOY = Machine("toy", copy=1e12, read=1e12, peak={"fp32": 1e15})
H200 = Machine("NVIDIA H200", copy=4.3e12, read=4.6e12, peak={"fp32": 60e12, "bf16": 700e12})
COLUMNS = ["implementation", "us", "us_p20", "us_p80", "GB/s", "TFLOP/s", "roof", "% of roof", "× best library", "note"]


# --- timing --------------------------------------------------------------------------------------

@pytest.mark.parametrize("ms", [2, 6])
def test_a_function_that_sleeps_takes_as_long_as_it_sleeps(ms):
    timing = bench.time(lambda: time.sleep(ms / 1000))
    assert 1000 * ms <= timing.us_p20 <= timing.us <= timing.us_p80
    assert timing.us < 1000 * ms + 5000 and timing.samples >= 5 and "cpu" in timing.how


def test_the_first_slow_call_and_one_outlier_do_not_count():
    calls = iter([0.05, *[0.001] * 3, 0.05, *[0.001] * 1000])
    assert bench.time_cpu(lambda: time.sleep(next(calls)), seconds=0.05).us < 8000


def test_at_least_five_repeats_are_taken_of_a_slow_function():
    assert bench.time_cpu(lambda: time.sleep(0.02), seconds=0.0).samples == 5


def test_percentiles_are_those_of_the_samples():
    assert bench._summary([5, 1, 4, 2, 3, 9], "x") == Timing(3.5, 2, 5, 6, "x")


def test_contestants_are_timed_one_by_one_on_the_same_arguments():
    seen: dict[str, set] = {"a": set(), "b": set()}
    timings = bench.time_many({name: lambda x, name=name: seen[name].add(x) for name in seen}, (7,))
    assert set(timings) == {"a", "b"} and seen == {"a": {7}, "b": {7}}


def test_launch_time_is_wall_time_a_call():
    calls = []
    timing = bench.time_launches(lambda: (calls.append(1), time.sleep(0.0005)), calls=2)
    assert 500 <= timing.us < 5000 and len(calls) == 2 * (bench.SAMPLES + 3)


# --- contestants ---------------------------------------------------------------------------------

def pair(n: int = 5000) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, generator=generator), torch.randn(n, generator=generator)


def compared(contestants, work=None, machine=TOY, reference=None, args=None, **how) -> pd.DataFrame:
    x, y = args or pair()
    return bench.compare(contestants, (x, y), work or cost.add(x.numel(), x.dtype), machine=machine,
                         reference=x.double() + y.double() if reference is None else reference, shape="5000", **how)


GOOD = {"numpy": lambda x, y: x + y, "torch": torch.add, "torch twice": lambda x, y: (x + y + x) - x,
        "triton/add": lambda x, y: x + y}


def test_the_table_has_its_columns_and_one_row_a_contestant():
    table = compared({name: fn for name, fn in GOOD.items() if name != "torch twice"})
    assert table.columns.tolist() == COLUMNS and table.implementation.tolist() == ["numpy", "torch", "triton/add"]
    assert table.attrs == {"work": {"flops": 5000, "bytes": 60000, "dtype": "fp32", "roof": "copy"}, "shape": "5000",
                           "machine": "toy", "dtype": "float32"}


def test_the_columns_of_a_row_belong_together():
    for row in compared(GOOD, depth=10, scale=3.0).to_dict("records"):
        assert row["GB/s"] == pytest.approx(60000 / row["us"] / 1e3)
        assert row["TFLOP/s"] == pytest.approx(5000 / row["us"] / 1e6)
        assert row["% of roof"] == pytest.approx(100 * 60000 / row["us"] * 1e6 / 1e12) and row["roof"] == "copy"


def test_the_best_library_is_the_faster_one_and_never_numpy_or_the_courses_kernel():
    slow = lambda x, y: (time.sleep(0.002), x + y)[1]
    slower = lambda x, y: (time.sleep(0.005), x + y)[1]
    table = compared({"numpy": lambda x, y: x + y, "torch": slower, "compile": slow, "triton/add": lambda x, y: x + y})
    ratio = table.set_index("implementation")["× best library"]
    assert ratio["compile"] == 1 and 0.2 < ratio["torch"] < 0.8 and ratio["triton/add"] > 5 and ratio["numpy"] > 5
    assert compared({"triton/add": torch.add})["× best library"].isna().all(), "no library, no ratio"


@pytest.mark.parametrize("name", ["numpy", "torch", "triton/add"])
def test_a_contestant_with_a_wrong_result_is_refused_by_name(name):
    with pytest.raises(AssertionError) as caught:
        compared(GOOD | {name: lambda x, y: x - y})
    assert str(caught.value).startswith(f"{name} is wrong in ") and "\n" not in str(caught.value)


def test_a_contestant_is_compared_before_anything_is_timed():
    calls = []
    with pytest.raises(AssertionError, match="triton/add"):
        compared({"torch": lambda x, y: (calls.append(1), x + y)[1], "triton/add": lambda x, y: x - y})
    assert len(calls) == 1


def test_every_one_of_several_results_is_compared():
    x, y = pair()
    both = (x.double() + y.double(), x.double() - y.double())
    compared({"torch": lambda x, y: (x + y, x - y), "numpy": lambda x, y: (x + y, x - y)}, reference=both)
    for wrong in (lambda x, y: (x + y, y - x), lambda x, y: (x + y,), lambda x, y: x + y):
        with pytest.raises(AssertionError, match="^torch"):
            compared({"torch": wrong}, reference=both)


def test_an_unknown_roof_is_named():
    with pytest.raises(ValueError, match="toy has no bf16 roof"):
        compared({"torch": torch.add}, work=Work(5000, 60000, "bf16"))


def test_a_point_above_the_roof_is_refused_on_a_gpu_unless_the_cache_held_it(monkeypatch):
    memory, compute = Work(1e6, 1e9), Work(1e15, 1e3, "bf16")
    timing = lambda cached=False: Timing(1e6, 1e6, 1e6, 25, "", cached)
    assert bench._note("x", 5.0, timing(), memory, H200) == "", "CPU roofs wander"
    monkeypatch.setattr(device, "ON_GPU", True)
    assert bench._note("x", 1.04, timing(), memory, H200) == ""
    assert bench._note("x", 1.3, timing(cached=True), memory, H200) == "cache-resident"
    with pytest.raises(ValueError, match="x at 7 is at 130 % of the copy roof"):
        bench._note("x at 7", 1.3, timing(), memory, H200)
    assert bench._note("x", 1.3, Timing(1.2e6, 0, 0, 25, ""), compute, H200) == "raises the roof", "833 of 989 TFLOP/s"
    with pytest.raises(ValueError, match="of the bf16 roof"):
        bench._note("x", 1.5, Timing(0.9e6, 0, 0, 25, ""), compute, H200)


# --- what is written down ------------------------------------------------------------------------

@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """An empty folder for recorded rows, and a machine that calls itself an H200 once `on()` was called."""
    monkeypatch.setattr(record, "RECORDED", tmp_path / "recorded")
    monkeypatch.delenv("COURSE_RECORD", raising=False)

    def on(recording: bool = True):
        monkeypatch.setattr(device, "ON_GPU", True)
        monkeypatch.setattr(device, "NAME", "NVIDIA H200")
        if recording:
            monkeypatch.setenv("COURSE_RECORD", "1")

    on.path = tmp_path / "recorded" / "nvidia-h200.csv"
    return on


def test_without_a_gpu_the_recorded_rows_come_back_and_nothing_is_measured():
    rows = record.measured("01_roofline", "fma_chain", lambda: pytest.fail("measured without a GPU"))
    assert len(rows) and rows.columns.tolist() == record.COLUMNS
    assert rows.attrs["where"] == f"recorded on NVIDIA H200, {rows.date[0]}"
    shown = bench.show(rows)
    assert len(shown) == len(rows) and shown.columns.name == rows.attrs["where"] and "µs" in shown


def test_nothing_is_written_without_a_gpu_or_without_being_asked(recorded, monkeypatch):
    table = compared({"torch": torch.add})
    monkeypatch.setenv("COURSE_RECORD", "1")
    assert not record.recording(), "a CPU is never recorded"
    record.save_roofs("01_x", H200)
    monkeypatch.delenv("COURSE_RECORD")
    recorded(recording=False)
    record.save_roofs("01_x", H200)
    rows = record.measured("01_x", "add", lambda: table)
    assert rows.attrs["where"] == "NVIDIA H200" and len(rows) == 1
    assert not record.RECORDED.exists()


def test_recording_replaces_the_rows_of_one_operator_and_keeps_the_others(recorded):
    first, second = compared({"torch": torch.add, "triton/add": torch.add}), compared({"torch": torch.add})
    recorded()
    record.measured("02_y", "add", lambda: [first, first])
    record.save_roofs("01_x", H200)
    record.measured("01_x", "add", lambda: first)
    record.measured("01_x", "other", lambda: first)
    before = record.load("01_x", "other")
    record.measured("01_x", "add", lambda: second)
    table = pd.read_csv(recorded.path)
    assert table.columns.tolist() == record.COLUMNS
    assert table.groupby(["lesson", "operator"]).size().to_dict() == {
        ("01_x", "add"): 1, ("01_x", "other"): 2, ("01_x", "roof"): 4, ("02_y", "add"): 4}
    assert table.lesson.is_monotonic_increasing, "lessons stay together"
    assert record.load("01_x", "other").equals(before)
    assert record.load("01_x", "add").us[0] == pytest.approx(second.us[0], rel=1e-5)


def test_what_was_recorded_is_read_back_as_it_was(recorded, monkeypatch):
    table = compared({"numpy": lambda x, y: x + y, "torch": torch.add})
    recorded()
    record.save_roofs("01_x", H200)
    for _ in range(3):  # a shape that looks like a number, beside roofs that have none
        table.attrs["shape"] = "268435456"
        record.measured("01_x", "add", lambda: table)
        record.measured("01_x", "again", lambda: table)
    monkeypatch.undo()
    monkeypatch.setattr(record, "RECORDED", recorded.path.parent)
    rows = record.measured("01_x", "add", lambda: None)
    assert rows["shape"].tolist() == ["268435456"] * 2 and rows.library.tolist() == [False, True]
    assert rows.implementation.tolist() == ["numpy", "torch"] and rows.gpu[0] == "NVIDIA H200"
    machine = Machine.recorded(lesson="01_x")
    assert machine.peak == H200.peak and (machine.copy, machine.read) == (H200.copy, H200.read)


@pytest.mark.parametrize("name, file", [("NVIDIA H200", "nvidia-h200"), ("Tesla T4", "tesla-t4"),
                                        ("NVIDIA A100-SXM4-80GB", "nvidia-a100-sxm4-80gb")])
def test_a_gpus_file_is_named_after_it(name, file):
    assert record.slug(name) == file
