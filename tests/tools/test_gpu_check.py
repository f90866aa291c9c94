"""`tools/gpu_check.py` keeps what every stage found, whatever the stage does."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import gpu_check
from gpu_checks import install, record, stages, workplace
from gpu_checks.workplace import Done, FailedError, SkippedError, Stage

ROOT = Path(__file__).parents[2]


@pytest.fixture
def place(tmp_path):
    with workplace.Workplace(ROOT, tmp_path, budget=60) as made:
        yield made


@pytest.fixture
def kept(tmp_path):
    return record.Record(tmp_path / "gpu_check.json", ROOT)


def stage(do, name="stage", **options):
    return Stage(name, "a stage of a test", do, **({"limit": 20, "needs_install": False} | options))


def run(place, kept, *stages):
    workplace.run_stages(stages, place, kept)
    return json.loads(kept.path.read_text(encoding="utf-8"))


def raising(error):
    def do(place):
        raise error

    return do


def test_what_stages_find_is_kept(place, kept):
    content = run(place, kept, stage(lambda place: {"calls": 3}, "first"))
    assert content["stages"]["first"]["status"] == "passed"
    assert content["stages"]["first"]["details"] == {"calls": 3}
    assert content["complete"] is True
    assert kept.passed
    assert "passed" in kept.table()
    assert "calls 3" in kept.table()


def test_a_stage_that_fails_ends_no_other(place, kept):
    content = run(
        place,
        kept,
        stage(raising(FailedError("2 of 3 wrong")), "wrong"),
        stage(raising(ZeroDivisionError("at /some/folder/file.py")), "broken"),
        stage(raising(SkippedError("no GPU")), "absent"),
        stage(lambda place: {}, "last"),
    )
    found = {name: (each["status"], each.get("reason")) for name, each in content["stages"].items()}
    assert found == {
        "wrong": ("failed", "2 of 3 wrong"),
        "broken": ("failed", "ZeroDivisionError: at .../file.py"),
        "absent": ("skipped", "no GPU"),
        "last": ("passed", None),
    }
    assert "Traceback" in content["stages"]["broken"]["output"]
    assert not kept.passed


def test_only_skips_are_no_success(place, kept):
    run(place, kept, stage(raising(SkippedError("no GPU"))))
    assert not kept.passed


def test_a_process_that_hangs_is_ended_with_its_children(place, kept):
    code = (
        "import subprocess, time; subprocess.Popen(['sleep', '77'])\n"
        "print('on', flush=True); time.sleep(60)\n"
    )

    def do(place):
        done = place.python("-c", code)
        assert done.status is None
        assert done.output == "on\n"
        raise FailedError(f"not done after {done.seconds:.0f} s")

    began = time.monotonic()
    content = run(place, kept, stage(do, limit=5))
    assert time.monotonic() - began < 12
    assert content["stages"]["stage"]["reason"] == "not done after 5 s"
    assert content["stages"]["stage"]["output"] == "on\n"


def test_time_is_kept_for_later_stages(tmp_path, kept):
    with workplace.Workplace(ROOT, tmp_path, budget=30) as place:
        limits = []
        content = run(
            place,
            kept,
            stage(lambda place: limits.append(place.until - time.monotonic()) or {}, "first"),
            stage(lambda place: {}, "second", reserve=22),
            stage(lambda place: {}, "third", limit=3),
        )
    assert 6 < limits[0] < 9
    assert content["stages"]["third"]["reason"] == "no time was left for it"


def test_figures_outlive_their_program(place, kept):
    def do(place):
        text = '{"way":"call","us":{"ours":[1.5]}}\n{"way":"ca'
        (place.scratch / "figures.jsonl").write_text(text, encoding="utf-8")
        raise FailedError("killed")

    content = run(place, kept, stage(do))
    assert content["figures"] == [{"way": "call", "us": {"ours": [1.5]}}]


def test_stages_that_need_the_package_are_skipped_without_it(place, kept):
    content = run(place, kept, stage(lambda place: {}, needs_install=True))
    assert content["stages"]["stage"]["reason"] == "tensor_ops_cuda could not be installed"


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("..\n3 passed in 0.05s\n", {"passed": 3}),
        ("= 1 failed, 20 passed in 61.20s (0:01:01) =", {"failed": 1, "passed": 20}),
        ("INTERNALERROR", {}),
    ],
)  # fmt: skip
def test_counts_of_pytest(output, expected):
    assert stages.counts(output) == expected


@pytest.mark.parametrize(
    ("status", "output", "expected"),
    [
        (0, "========= ERROR SUMMARY: 0 errors\n120 calls\n", "0 errors, 120 calls, 3 s"),
        (9, "========= ERROR SUMMARY: 4 errors\n", "failed: 4 errors"),
        (0, "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors)\n", "0 hazards"),
        (1, "Traceback\n", "failed: exit status 1"),
        (None, "", "failed: not done after 3 s"),
        (1, "========= Error: Device not supported\n", "refused: compute-sanitizer does not"),
    ],
)  # fmt: skip
def test_what_sanitizers_say(status, output, expected):
    assert stages.sanitizer_result(Done(status, output, 3.0)).startswith(expected)


def test_decode_steps_have_tests_of_their_own(place, monkeypatch):
    """Each of the package's tests is in one of the two stages, those of its wheel in none."""
    given = []
    monkeypatch.setattr(place, "python", lambda *words: given.append(words) or Done(0, "", 1.0))
    stages.package_tests(place)
    stages.decode(place)
    first, second = ([str(word) for word in words] for words in given)
    assert f"--ignore-glob={stages.DECODE_TESTS}" in first
    files = {path.name for path in (ROOT / stages.PACKAGE / "tests").glob("test_decode*.py")}
    assert {Path(word).name for word in second} >= files
    assert "test_decode_llama.py" in files
    assert (place.site / "tensor_ops_decode").is_dir()


def test_decode_is_skipped_where_its_package_cannot_be_imported(place, monkeypatch):
    monkeypatch.setattr(stages, "DECODE_NEEDS", ("jinja2", "none_such"))
    for stage in (stages.decode, stages.decode_sanitizers, stages.decode_benchmark):
        with pytest.raises(SkippedError, match="not installed: none_such"):
            stage(place)


def test_sanitizers_watch_a_test_that_is_there(place, monkeypatch):
    given = []
    monkeypatch.setattr(stages.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(
        place, "run", lambda words: given.append(words) or Done(0, "ERROR SUMMARY: 0 errors", 2.0)
    )
    found = stages.decode_sanitizers(place)
    assert found == dict.fromkeys(stages.SANITIZERS, "0 errors, 2 s")
    test = next(word for word in given[0] if "::" in word)
    path, name = test.split("::")
    assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")
    assert given[0][:2] == ["/usr/bin/compute-sanitizer", "--tool"]


def test_what_measures_leaves_figures_until_its_time_is_up(place, monkeypatch):
    given = []

    def python(*words, **environment):
        given.append(words)
        path = words[words.index("--out") + 1]
        path.write_text('{"way": "decode"}\n', encoding="utf-8")
        return Done(2, "decode: its time was up\n", 9.0)

    monkeypatch.setattr(place, "python", python)
    place.until = time.monotonic() + 60
    assert stages.decode_benchmark(place) == {"ended": "early"}
    assert given[0][:2] == ("-m", "gpu.decode")
    assert workplace.figures_of(place) == [{"way": "decode"}]


def test_a_pure_package_is_installed_without_its_build_backend(place):
    install.install(place, "tensor-ops")
    code = (
        "import tensor_ops, importlib.metadata as m\n"
        "print(tensor_ops.__file__, m.version('tensor-ops'))\n"
    )
    assert place.python("-c", code).output.startswith(str(place.site))


def test_architectures_are_cmakes():
    assert install.architecture("9.0") == "90-real"
    assert install.architecture("12.0") == "120-real"


def test_the_command_lists_its_stages(capsys):
    assert gpu_check.main(["--out", "unused", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert [line.split()[0] for line in shown.splitlines()] == [s.name for s in stages.STAGES]
    assert not Path("unused").exists()
    assert gpu_check.main(["--out", "unused", "--dry-run", "--stages", "install,probe"]) == 0


def test_an_unknown_stage_is_named(capsys):
    with pytest.raises(SystemExit):
        gpu_check.main(["--out", "unused", "--stages", "instal"])
    assert "'instal' is none of install, probe" in capsys.readouterr().err


def test_limits_fit_the_budget():
    assert sum(stage.reserve for stage in stages.STAGES) < gpu_check.BUDGET < 20 * 60


def test_the_command_says_what_is_missing(tmp_path):
    """As on a machine without a network and without what the package is built with."""
    (tmp_path / "pip.py").write_text("raise SystemExit(3)\n")
    command = [sys.executable, ROOT / "tools/gpu_check.py", "--out", tmp_path / "out"]
    done = subprocess.run(
        [*command, "--stages", "install,probe"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    content = json.loads((tmp_path / "out/gpu_check.json").read_text(encoding="utf-8"))
    assert content["stages"]["install"]["status"] == "failed"
    assert content["stages"]["probe"]["status"] == "skipped"
    assert content["format"] == record.FORMAT
    assert (tmp_path / "out/gpu_check.log").exists()
    assert "failed" in done.stdout
