"""``tensor-ops bench decode``: its report, its files, its errors and Ctrl-C."""

import json
import os
import sys

import pytest

from tensor_ops.__main__ import main
from tensor_ops_decode import PersistentKernel

QUICK = ("--prompt-tokens=5", "--new-tokens=4")
FIGURES = {"weights", "caches", "bandwidth", "fraction", "threads", "prompt", "decode"}


def bench(folder, *words):
    return main(["bench", "decode", str(folder), *words])


def test_it_reports_and_writes_every_figure(runnable, backend, tmp_path, capsys):
    file = tmp_path / "decode.json"
    options = [f"--backend={backend}", "--num-workers=2", f"--json={file}"]
    assert bench(runnable, *QUICK, *options) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith(f"{runnable.name} on {backend}: ")
    for words in ("4 tokens after 5", "prompt", "GB/s", "Decoding is limited by"):
        assert words in out
    record = json.loads(file.read_text(encoding="utf-8"))
    kinds = {node["kind"] for node in record["nodes"]}
    assert {
        kind for line in out.split("\n") if line for kind in line.split()[0].split("+")
    } >= kinds
    assert record["figures"].keys() == FIGURES
    assert record["interrupted"] is False
    assert [each["tokens"] for each in record["rounds"]] == [4]
    assert record["kernel"]["backend"] == backend
    assert record["machine"]["usable_cpus"] >= 1
    # The bytes are those that explain() states, at the 7 tokens in the middle.
    reads = record["kernel"]["reads"]
    weights = sum(size for types in reads["weights"].values() for size in types.values())
    assert record["figures"]["weights"] == weights
    assert record["figures"]["caches"] == 7 * reads["cache_per_token"]


def test_weights_that_are_quantized_are_fewer_bytes(folder, tmp_path, capsys):
    file = tmp_path / "decode.json"
    sizes = []
    for options in ([], ["--quantize=q8_0"]):
        assert bench(folder, *QUICK, "--backend=python", f"--json={file}", *options) == 0
        sizes.append(json.loads(file.read_text())["figures"]["weights"])
    assert sizes[1] < 0.4 * sizes[0]
    capsys.readouterr()


@pytest.mark.parametrize("rounds", [0, 2])
def test_an_interrupt_keeps_what_was_measured(folder, rounds, monkeypatch, tmp_path, capsys):
    read, file = PersistentKernel.read_bandwidth, tmp_path / "decode.json"
    calls = []

    def interrupted(kernel):
        if len(calls) == rounds:
            raise KeyboardInterrupt
        calls.append(kernel)
        return read(kernel)

    monkeypatch.setattr(PersistentKernel, "read_bandwidth", interrupted)
    words = ("--prompt-tokens=5", "--new-tokens=20", "--backend=python", f"--json={file}")
    assert bench(folder, *words) == 130
    out, err = capsys.readouterr()
    assert ("16 tokens after 5" in out, file.exists()) == (rounds > 0, rounds > 0)
    assert err == ("stopped after 16 tokens\n" if rounds else "")
    if rounds:
        assert json.loads(file.read_text())["interrupted"] is True


@pytest.mark.skipif(os.name != "posix", reason="signals and terminals of POSIX")
def test_ctrl_c_ends_cleanly(folder, interrupted_command):
    words = ["bench", "decode", folder, "--backend=python", "--prompt-tokens=4", "--new-tokens=60"]
    status, out, rest = interrupted_command(words, " 16 of 60 tokens")
    assert "Traceback" not in rest
    assert status in (0, 130)  # 0 where it was done before the signal came
    assert "Decoding is limited by" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing"], "missing"),
        (["FOLDER", "--backend=nothing"], "nothing"),
        (["FOLDER", "--backend=python", "--num-workers=0"], "num_workers must be a positive"),
        (["FOLDER", "--backend=python", "--new-tokens=0"], "new_tokens must be a positive integer"),
        (["FOLDER", "--backend=python", "--prompt-tokens=99"], "more than max_seq_length"),
        (["FOLDER", "--json=missing/file"], "missing; make it first; nothing was measured"),
    ],
)
def test_failures_are_one_line_and_status_1(folder, words, message, capsys):
    words = [str(folder) if word == "FOLDER" else word for word in words]
    assert main(["bench", "decode", *words]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("tensor-ops: error: ")
    assert message in err


def test_the_picture_needs_matplotlib_and_a_suffix_it_knows(folder, monkeypatch, capsys, tmp_path):
    with pytest.raises(SystemExit) as exit_:
        bench(folder, "--plot=decode.gif")
    assert exit_.value.code == 2
    assert ".svg, .png, .pdf" in capsys.readouterr().err
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    assert bench(folder, f"--plot={tmp_path / 'decode.svg'}") == 1
    assert "pip install matplotlib" in capsys.readouterr().err
