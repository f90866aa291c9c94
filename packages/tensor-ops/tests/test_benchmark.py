"""Measurements of every op on every backend, and how they are made."""

import json
import math
import sys
import time
import types

import numpy as np
import pytest

from tensor_ops import benchmark, timing
from tensor_ops.__main__ import main
from tensor_ops.benchmark import Case
from tensor_ops.numerics.plain import caller
from tensor_ops.op import OPS
from tensor_ops.op.samples import Draw, arguments
from tensor_ops.timing import Timing
from tensor_ops.variants import VARIANTS


def measure(case, **kwargs):
    return {
        result.backend: result
        for result in benchmark.measure_op(case, ["tpu"], **({"repeats": 2} | kwargs))
    }


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
        one, other = one.astype(float), other.astype(float)  # noqa: PLW2901
        # The terms of a derivative cancel where it is small.
        size = np.abs(other).max() if VARIANTS[name].op.derivative_of else 1
        np.testing.assert_allclose(one, other, rtol=eps, atol=eps * max(1, size))


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
    for module in ("scipy", "scipy.special"):
        monkeypatch.setitem(sys.modules, module, None)
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
    monkeypatch.setattr(timing, "calls_per_round", lambda call: 1)
    monkeypatch.setattr(
        timing, "mean_time", lambda call, number: order.append(call.func is other.silu) or 1.0
    )
    measure(Case("silu", (2, 8)), repeats=4)
    assert order == [False, False, True, True, False, False] * 2


def test_calls_that_are_far_too_slow_have_six_rounds(monkeypatch):
    times = {"fast": 1e-3, "slower": 3e-3, "slow": 5e-3}
    monkeypatch.setattr(timing, "mean_time", lambda call, number: times[call])
    timings = timing.time_calls({name: name for name in times}, 0.0, repeats=9, most=4)
    assert {name: timing.rounds for name, timing in timings.items()} == {
        "fast": 9,
        "slower": 9,
        "slow": 6,
    }
    assert {name: timing.median for name, timing in timings.items()} == times


def test_one_disturbed_round_does_not_make_a_call_far_too_slow(monkeypatch):
    rounds = iter([1e-6] * 3 + [9e-6] + [1e-6] * 8)
    monkeypatch.setattr(timing, "mean_time", lambda call, number: next(rounds, 1e-6))
    timings = timing.time_calls({"disturbed": "disturbed", "other": "other"}, 0.0, 9, most=4)
    assert [each.rounds for each in timings.values()] == [9, 9]


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


def test_results_are_plain_values():
    timing = Timing(1.0, None, None, 1, 1)
    case = Case("silu", (2,))
    result = benchmark.Result(case, "python", OPS["silu"].bounds["float32"], timing)
    assert json.loads(json.dumps(result.as_dict()))["low_seconds"] is None
