"""The quickstart: the model, and a table of every op."""

import contextlib
import io
from dataclasses import replace
from types import ModuleType

import pytest

import tensor_ops
from tensor_ops import benchmark
from tensor_ops.op.accuracy import Measured
from tensor_ops.variants import VARIANTS


@pytest.fixture(scope="module")
def printed(embed_sentences: ModuleType, quickstart: ModuleType) -> str:
    """The output of one run, which takes seconds."""
    output = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(output):
        patch.setattr(embed_sentences, "ROUNDS", 1)
        try:
            quickstart.main(["--seconds", "0.001"])
        except SystemExit as error:
            pytest.fail(f"{error}\n{output.getvalue()}")
    return output.getvalue()


def test_it_runs_the_model_and_measures_every_op(printed: str) -> None:
    model, table = printed.split("ops at LLM shapes")
    assert "How similar the sentences are" in model
    lines = table.splitlines()
    for name in VARIANTS:
        for tokens in (1, 128):
            assert any(line.startswith(f"{name} ") and f" {tokens}x" in line for line in lines), (
                name
            )
    for text in ("machine", f"backend  {tensor_ops.get_backend()}", "NumPy", "speed-up", "error"):
        assert text in table
    assert "WRONG" not in table


def test_it_names_the_simd_level_of_the_cpp_backend(printed: str) -> None:
    cpp = pytest.importorskip("tensor_ops_cpp")
    assert f"SIMD level {cpp.simd_level}" in printed


def test_every_column_of_the_table_stands_below_its_head(printed: str) -> None:
    lines = printed.split("ops at LLM shapes")[1].splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("op "))
    head, rows = lines[first], lines[first + 1 : lines.index("", first)]
    assert len(rows) >= 2 * len(VARIANTS)
    for row in rows:
        for name in ("shape", "backend", "error"):  # from the left
            place = head.index(name)
            assert row[place - 1] == " " != row[place], row
        for name in ("NumPy", "time", "speed-up"):  # to the right
            place = head.index(name) + len(name)
            assert row[place] == " " != row[place - 1], row


def test_the_table_is_at_most_100_columns_wide(printed: str) -> None:
    table = printed.split("ops at LLM shapes")[1]
    # A reason why a backend does not have an op may be longer.
    lines = (line for line in table.splitlines() if "skipped: " not in line)
    assert max(map(len, lines)) <= 100


def test_a_wrong_result_is_an_error(
    embed_sentences: ModuleType,
    quickstart: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    case = benchmark.Case("silu", (1, 8))
    plain, right = benchmark.measure_op(case, ["python"], repeats=1)
    wrong = replace(right, accuracy=Measured(error=9.0, limit=4.0))
    monkeypatch.setattr(embed_sentences, "main", lambda arguments: None)
    monkeypatch.setattr(benchmark, "cases", lambda: [case])
    monkeypatch.setattr(benchmark, "measure_op", lambda case, seconds: [plain, wrong])
    with pytest.raises(SystemExit, match="wrong"):
        quickstart.main([])
    assert "WRONG: 9 (4 ULP)" in capsys.readouterr().out
