"""``tensor-ops bench`` and the measuring behind it."""

import io
import json
import math
import os
import signal
import subprocess
import sys
import time
import types
from datetime import datetime
from importlib.util import find_spec

import numpy as np
import pytest

from tensor_ops import backends, benchmark, timing
from tensor_ops.__main__ import main
from tensor_ops.benchmark import Case
from tensor_ops.cli.progress import Progress
from tensor_ops.op import OPS
from tensor_ops.plain import caller
from tensor_ops.samples import Draw, arguments
from tensor_ops.timing import Timing
from tensor_ops.variants import VARIANTS

VARIABLES = (
    "TENSOR_OPS_CONFIG",
    "TENSOR_OPS_FORCE_BACKEND",
    "TENSOR_OPS_BACKEND",
    "TENSOR_OPS_BACKEND_PRIORITY",
)
QUICK = ("--shape=2x8", "--repeats=2", "--backends=python")


@pytest.fixture
def other(monkeypatch):
    """A second backend: NumPy's ops under another name, to be changed by a test."""
    module = types.ModuleType("other")
    module.supports = lambda op, dtype, device: None
    module.info = lambda: {"version": "1.0"}
    for name, op in OPS.items():
        setattr(module, name, op.numpy)
    monkeypatch.setitem(backends._backends, "tpu", backends.Backend("tpu", module, None))
    return module


def measure(case, **kwargs):
    return {
        result.backend: result
        for result in benchmark.measure_op(case, ["tpu"], **({"repeats": 2} | kwargs))
    }


# Measuring


def test_median_interval_has_its_confidence():
    """By the binomial distribution, and as close to 95% as order statistics come."""
    for n in (6, 7, 8, 9, 20, 51, 200):
        low, high = timing.median_interval(list(range(1, n + 1)))
        outside = sum(math.comb(n, k) for k in range(low)) / 2**n
        wider = sum(math.comb(n, k) for k in range(low + 1)) / 2**n
        assert high == n + 1 - low
        assert 2 * outside <= 0.05 < 2 * wider
    assert [timing.median_interval([1.0] * n) for n in range(6)] == [None] * 6


@pytest.mark.parametrize("n", [1001, 1002, 2000, 5001])
def test_median_interval_of_many_samples_has_its_confidence(n):
    low, high = timing.median_interval(range(1, n + 1))
    assert high == n + 1 - low
    below = [sum(math.comb(n, k) for k in range(rank)) for rank in (low, low + 2)]
    assert 40 * below[0] <= 2**n < 40 * below[1]


def test_median_interval_of_a_minute_of_short_calls():
    assert timing.median_interval(range(1, 1_000_001)) == (499_020, 500_981)


def test_median_interval_covers_the_median():
    random = np.random.default_rng(1)
    hits = 0
    for _ in range(1000):
        low, high = timing.median_interval(random.exponential(size=25).tolist())
        hits += low <= math.log(2) <= high
    assert hits >= 930


def test_cases_are_every_op_at_every_shape_and_dtype():
    found = benchmark.cases(shapes=[(2, 256), (5,)], dtypes=["float16", "float64"])
    assert len(found) == len(VARIANTS) * 4
    assert {case.op for case in found} == set(VARIANTS)
    assert {each.op.name for each in VARIANTS.values()} == set(OPS)
    assert str(Case("silu", (2, 256), "float16")) in map(str, found)


def test_an_op_is_all_its_variants_and_a_variant_itself():
    def found(*names):
        return [case.op for case in benchmark.cases(names, [(2, 8)])]

    assert found("gelu", "silu") == ["gelu:tanh", "gelu:none", "silu"]
    assert found("gelu:none") == ["gelu:none"]
    assert found("rope:interleaved") == ["rope:interleaved"]


def test_a_variant_is_called_with_its_options(other):
    seen = []
    other.gelu = lambda x, **options: (seen.append(options), OPS["gelu"].numpy(x, **options))[1]
    assert measure(Case("gelu:none", (2, 8)))["tpu"].ok
    assert seen[0] == {"approximate": "none"}
    other.gelu = lambda x, approximate: OPS["gelu"].numpy(x)
    assert not measure(Case("gelu:none", (2, 8)))["tpu"].ok


def test_ops_on_heads_get_heads():
    on_heads = [
        variant
        for variant in VARIANTS.values()
        if any(kind.role == "half_rows" for kind in variant.op.kinds.values())
    ]
    assert on_heads
    for variant in on_heads:
        cases = benchmark.cases([variant.op.name], [(3, 4096), (2, 3, 64), (3, 6)])
        shapes = [case.shape for case in cases if case.op == variant.name]
        assert shapes == [(3, 32, 128), (2, 3, 64), (3, 6)]


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_every_variant_is_measured_within_its_bound(name, dtype):
    variant = VARIANTS[name]
    [case] = [each for each in benchmark.cases([name], [(2, 256)], [dtype]) if each.op == name]
    plain, result = benchmark.measure_op(case, [], repeats=6)
    assert (plain.backend, result.backend) == (benchmark.PLAIN, "python")
    assert result.ok, result
    assert result.accuracy.limit == variant.op.bound(dtype, "python").at(result.case.shape[-1])
    assert result.as_dict()["options"] == variant.options
    timing = result.timing
    assert 0 < timing.low <= timing.median <= timing.high
    assert timing.rounds == 6
    if plain.timing is None:
        assert "scipy" in plain.unsupported
        assert result.speedup is None
    else:
        assert plain.speedup == 1.0
        assert result.speedup == plain.timing.median / timing.median


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_plain_expression_is_that_of_the_op(name, dtype, monkeypatch):
    """It may be less accurate than a backend may be, and no more than that."""
    special = types.ModuleType("scipy.special")
    special.erf = lambda x: np.vectorize(math.erf)(x).astype(x.dtype)
    monkeypatch.setitem(sys.modules, "scipy", types.ModuleType("scipy"))
    monkeypatch.setitem(sys.modules, "scipy.special", special)
    [case] = [each for each in benchmark.cases([name], [(2, 256)], [dtype]) if each.op == name]
    plain, _ = benchmark.measure_op(case, [], repeats=1)
    assert plain.ok, plain
    assert plain.timing
    values = arguments(VARIANTS[name].op, case.shape, Draw(dtype, "plain"))
    given = [values[each] for each in VARIANTS[name].op.kinds if each in values]
    expression = caller(VARIANTS[name].op.plain, dtype)
    found = expression(*given, **VARIANTS[name].options)
    expected = VARIANTS[name].op.numpy(**values, **VARIANTS[name].options)
    eps = {"float64": 1e-13, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}[dtype]
    if VARIANTS[name].op.outputs == 1:
        found, expected = (found,), (expected,)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one.astype(float), other.astype(float), rtol=eps, atol=eps)


def test_plain_expression_may_be_less_accurate_than_a_backend(other, monkeypatch):
    monkeypatch.setattr(OPS["silu"], "plain", lambda x: x * np.float32(0.5))
    found = measure(Case("silu", (2, 8)))
    assert found[benchmark.PLAIN].ok
    assert not found[benchmark.PLAIN].is_accurate
    assert found["tpu"].speedup > 0
    line = benchmark.format_table([found[benchmark.PLAIN]]).splitlines()[1]
    assert line.endswith("out of bound")
    assert "WRONG" not in line


def test_plain_expression_may_need_what_is_not_installed(other, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    found = measure(Case("gelu:none", (2, 8)))
    assert found[benchmark.PLAIN].ok
    assert "scipy" in found[benchmark.PLAIN].unsupported
    assert found["tpu"].timing
    assert found["tpu"].speedup is None


def test_op_without_a_plain_expression_has_no_speedup(other, monkeypatch):
    monkeypatch.setattr(OPS["silu"], "plain", None)
    found = measure(Case("silu", (2, 8)))
    assert list(found) == ["python", "tpu"]
    assert found["tpu"].timing
    assert found["tpu"].speedup is None
    json.dumps(found["tpu"].as_dict(), allow_nan=False)


def test_time_is_that_of_one_call(other):
    other.silu = lambda x: (time.sleep(0.005), OPS["silu"].numpy(x))[1]
    found = measure(Case("silu", (2, 8)), seconds=0.01, repeats=None)
    slow, fast = found["tpu"], found["python"]
    assert 0.005 <= slow.timing.median < 0.05
    assert (slow.timing.calls, slow.timing.rounds) == (1, 6)
    assert fast.timing.median < 0.005
    assert fast.timing.calls > 1
    assert slow.speedup == found[benchmark.PLAIN].timing.median / slow.timing.median


def test_rounds_are_interleaved_in_turning_order(other, monkeypatch):
    order = []
    monkeypatch.setattr(timing, "_calls_per_round", lambda call: 1)
    monkeypatch.setattr(
        timing, "_mean_time", lambda call, number: order.append(call.func is other.silu) or 1.0
    )
    measure(Case("silu", (2, 8)), repeats=4)
    assert order == [False, False, True, True, False, False] * 2


def test_calls_that_are_far_too_slow_have_one_round(monkeypatch):
    times = {"fast": 1e-3, "slower": 3e-3, "slow": 5e-3}
    monkeypatch.setattr(timing, "_mean_time", lambda call, number: times[call])
    timings = timing.time_calls({name: name for name in times}, 0.0, most=4)
    assert {name: timing.rounds for name, timing in timings.items()} == {
        "fast": 6,
        "slower": 6,
        "slow": 1,
    }
    assert {name: timing.median for name, timing in timings.items()} == times


def test_wrong_result_is_found(other):
    other.silu = lambda x: OPS["silu"].numpy(x) * np.float32(1.001)
    result = measure(Case("silu", (2, 8)))["tpu"]
    assert not result.ok
    assert result.accuracy.error > 1000
    other.silu = lambda x: OPS["silu"].numpy(x) * np.float32("nan")
    result = measure(Case("silu", (2, 8)))["tpu"]
    assert not result.ok
    json.dumps(result.as_dict(), allow_nan=False)
    assert "WRONG: differs in NaN" in benchmark.format_table([result])


def test_what_a_backend_does_not_take_is_no_failure(other):
    other.supports = lambda op, dtype, device: "no halves"
    result = measure(Case("silu", (2, 8), "float16"))["tpu"]
    assert result.ok
    assert (result.timing, result.speedup) == (None, None)
    assert "no halves" in result.unsupported
    assert "skipped: " in benchmark.format_table([result])


def test_failing_backend_fails_alone(other):
    def fail(x):
        raise RuntimeError("device lost")

    other.silu = fail
    found = measure(Case("silu", (2, 8)))
    assert found["python"].timing
    assert not found["tpu"].ok
    assert found["tpu"].failure == "RuntimeError: device lost"
    assert "FAILED: RuntimeError: device lost" in benchmark.format_table(found.values())


@pytest.mark.parametrize("error", [ValueError, MemoryError])
def test_shape_that_nothing_can_run_is_a_failure(error, monkeypatch, capsys):
    def refuse(*args, **kwargs):
        raise error("expected a last axis of even length")

    monkeypatch.setattr(OPS["silu"], "numpy", refuse)
    assert main(["bench", "--ops=silu", "--shape=7", "--repeats=1", "--backends=python"]) == 1
    assert "FAILED: expected a last axis of even length" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1.0, "1.00 s"),
        (0.0123456, "12.3 ms"),
        (0.123456, "123 ms"),
        (4.5678e-6, "4.57 us"),
        (4.5e-8, "45 ns"),
        (999.9e-6, "1.00 ms"),
    ],
)
def test_times_have_three_digits(seconds, text):
    assert timing.format_time(seconds) == text


# The command


def test_table_and_json(tmp_path, capsys, other):
    file = tmp_path / "times.json"
    arguments = ["--ops", "silu", "rms_norm", "--shape=2x8,4", "--dtype=float32,bfloat16"]
    assert main(["bench", *arguments, "--backends=tpu", "--repeats=6", f"--json={file}"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert len(lines) == 1 + 2 * 2 * 2 * 3
    assert "95% interval" in lines[0]
    assert [line.split()[:4] for line in lines[1:4]] == [
        ["silu", "2x8", "float32", name] for name in ("plain", "python", "tpu")
    ]
    assert all(line.endswith(" ok") for line in lines[1:] if benchmark.PLAIN not in line)
    record = json.loads(file.read_text())
    assert record["interrupted"] is False
    assert datetime.fromisoformat(record["date"]).tzinfo
    assert {name: each["version"] for name, each in record["backends"].items()} == {
        "python": np.__version__,
        "tpu": "1.0",
    }
    assert record["arguments"]["shape"] == [[2, 8], [4]]
    assert record["machine"]["usable_cpus"] >= 1
    assert len(record["results"]) == 24
    assert record["results"][0]["backend"] == "plain NumPy"
    first = record["results"][1]
    assert (first["op"], first["shape"], first["dtype"]) == ("silu", [2, 8], "float32")
    assert first["low_seconds"] <= first["median_seconds"] <= first["high_seconds"]
    assert first["within_bound"] is True


def test_available_backends_are_measured_by_default(capsys):
    assert main(["bench", "--ops=silu", "--shape=8", "--repeats=1"]) == 0
    assert "python" in capsys.readouterr().out


def test_wrong_result_fails_the_command(other, capsys):
    other.silu = lambda x: x
    assert main(["bench", "--ops=silu", "--shape=8", "--repeats=1", "--backends=tpu"]) == 1
    assert "WRONG" in capsys.readouterr().out


def test_interrupt_keeps_what_there_is(tmp_path, capsys, other):
    def interrupt(x, weight):
        raise KeyboardInterrupt

    other.rms_norm = interrupt
    file = tmp_path / "times.json"
    arguments = ["--ops=silu,rms_norm", "--shape=8", "--repeats=1", "--backends=tpu"]
    assert main(["bench", *arguments, f"--json={file}"]) == 130
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == ["op", "silu", "silu", "silu"]
    assert "stopped" in err
    record = json.loads(file.read_text())
    assert record["interrupted"] is True
    assert len(record["results"]) == 3


@pytest.mark.skipif(os.name != "posix", reason="signals and terminals of POSIX")
def test_ctrl_c_exits_with_130():
    terminal, end = os.openpty()
    command = [sys.executable, "-m", "tensor_ops", "bench", "--ops=silu", "--shape=8"]
    running = subprocess.Popen(
        [*command, "--backends=python", "--seconds=60"],
        stdout=subprocess.PIPE,
        stderr=end,
        text=True,
        # A shell lets what it starts in the background ignore the signal.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    os.close(end)
    seen = ""
    while "0/1  silu 8 float32" not in seen:  # the bar, and so the measuring, has begun
        seen += os.read(terminal, 1000).decode()
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "95% interval" in out
    rest = os.read(terminal, 10_000).decode()
    assert rest.endswith("stopped after 0 results\r\n")
    assert "Traceback" not in rest
    os.close(terminal)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--ops=slu",), "did you mean 'silu'"),
        (("--ops=silu,",), "there is no op ''"),
        (("--shape=2by8",), "128x4096"),
        (("--dtype=int8",), "bfloat16"),
        (("--backends=cdua",), "did you mean 'cuda'"),
        (("--seconds=0",), "positive"),
        (("--seconds=nan",), "positive"),
        (("--repeats=0",), "positive whole number"),
        (("--repeats=2", "--seconds=1"), "not allowed with"),
        (("--plot=times.gif",), ".svg, .png, .pdf"),
        (("--plot=times",), ".svg, .png, .pdf"),
    ],
)
def test_usage_errors(arguments, says, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["bench", *arguments])
    assert caught.value.code == 2
    assert says in capsys.readouterr().err


@pytest.fixture
def unmeasured(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("measured")

    monkeypatch.setattr(benchmark, "measure_op", refuse)


def test_missing_matplotlib_is_told_before_measuring(unmeasured, monkeypatch, tmp_path, capsys):
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main(["bench", f"--plot={tmp_path / 'times.svg'}", *QUICK]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("tensor-ops: error: --plot needs matplotlib")
    assert "pip install matplotlib" in err
    assert os.listdir(tmp_path) == ["prefix"]


@pytest.mark.parametrize("place", ["missing/times.json", ""])
def test_place_that_cannot_be_written_is_told_before_measuring(unmeasured, place, tmp_path, capsys):
    assert main(["bench", f"--json={tmp_path / place}", *QUICK]) == 1
    assert "cannot be written; nothing was measured" in capsys.readouterr().err


def test_unavailable_backend_is_told_before_measuring(unmeasured, capsys):
    assert main(["bench", "--backends=python,nki"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("tensor-ops: error: backend 'nki' (named by --backends) is unavailable: ")


def test_missing_forced_backend_is_told_before_measuring(unmeasured, config_file, capsys):
    config_file.write_text('{"force_backend": "nki"}')
    assert main(["bench", *QUICK]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"tensor-ops: error: backend 'nki' (forced by {config_file})")


@pytest.mark.skipif(not find_spec("matplotlib"), reason="no matplotlib")
@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_plot(suffix, tmp_path, other):
    file = tmp_path / f"times.{suffix}"
    other.supports = lambda op, dtype, device: None if op == "silu" else "only silu"
    arguments = ["--shape=2x256,8", "--repeats=6", "--backends=tpu", f"--plot={file}"]
    assert main(["bench", *arguments]) == 0
    assert file.stat().st_size > 1000


# The progress bar


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_one_line_that_is_wiped():
    terminal = Terminal()
    with Progress(2, terminal) as progress:
        progress.show("first")
        progress.show("second")
    lines = terminal.getvalue().split("\r\x1b[K")
    assert lines[1:] == [
        "[........................] 0/2  first",
        "[############............] 1/2  second",
        "",
    ]
    assert "\n" not in terminal.getvalue()


def test_progress_is_silent_without_a_terminal():
    stream = io.StringIO()
    with Progress(1, stream) as progress:
        progress.show("first")
    assert stream.getvalue() == ""


def test_results_are_plain_values():
    timing = Timing(1.0, None, None, 1, 1)
    case = Case("silu", (2,))
    result = benchmark.Result(case, "python", OPS["silu"].bounds["float32"], timing)
    assert json.loads(json.dumps(result.as_dict()))["low_seconds"] is None
