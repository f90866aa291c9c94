"""`tools/gpu_check.py` keeps what every stage found, whatever the stage does."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import gpu_check
from gpu_checks import record, stages, workplace
from gpu_checks.workplace import FailedError, SkippedError, Stage

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def ctrl_c():
    """Have Ctrl-C interrupt, which a shell lets what it starts in the background ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def place(tmp_path):
    with workplace.Workplace(ROOT, tmp_path, budget=60) as made:
        yield made


@pytest.fixture
def kept(tmp_path):
    return record.Record(tmp_path / "gpu_check.json", ROOT)


def stage(do, name="stage", **options):
    return Stage(name, "a stage of a test", do, **({"limit": 20} | options))


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
        assert done.output.startswith("on\n")
        raise FailedError(f"not done after {done.seconds:.0f} s")

    place.budget = time.monotonic() - place.started + 3
    began = time.monotonic()
    content = run(place, kept, stage(do))
    assert time.monotonic() - began < 12
    assert content["stages"]["stage"]["reason"] == "not done after 3 s"
    assert content["stages"]["stage"]["output"].startswith("on\n")


@pytest.mark.parametrize(
    ("budget", "limits", "expected"),
    [
        (30, (10, 10, 10), (10, 15, 30)),
        (60, (10, 10, 10), (20, 30, 60)),  # more time than is needed is shared
        (15, (10, 10, 10), (10, 10, 15)),  # those that come first lack nothing
        (5, (180, 10, 10), (5, 5, 5)),
    ],
)
def test_every_stage_has_its_limit_and_a_share_of_what_is_left(
    tmp_path, kept, budget, limits, expected
):
    """These are done at once and leave their time to the others; a short budget skips none."""
    given = []

    def note(place):
        given.append(place.left_of_stage)
        return {}

    with workplace.Workplace(ROOT, tmp_path, budget=budget) as place:
        run(place, kept, *(stage(note, f"limit of {each}", limit=each) for each in limits))
    assert given == pytest.approx(expected, abs=2)


def test_what_comes_after_the_end_of_the_time_is_skipped(tmp_path, kept):
    with workplace.Workplace(ROOT, tmp_path, budget=0.5) as place:
        content = run(place, kept, stage(lambda place: {}))
    assert content["stages"]["stage"]["reason"] == "no time was left for it"


def test_tests_that_are_cut_off_have_said_what_failed(place, kept, tmp_path):
    (tmp_path / "test_slow.py").write_text(
        "import time\n"
        "def test_right(): pass\n"
        "def test_wrong(): assert 'left' == 'right'\n"
        "def test_slow(): time.sleep(60)\n"
    )

    def do(place):
        words = "-m", "pytest", "-q", tmp_path / "test_slow.py"
        done = place.python(*words, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
        place.details |= stages.counts(done.output)
        raise FailedError("not done")

    place.budget = time.monotonic() - place.started + 3
    found = run(place, kept, stage(do))["stages"]["stage"]
    assert found["details"] == {"failed": 1, "passed": 1}
    assert "assert 'left' == 'right'" in found["output"]


def test_what_is_printed_is_in_the_log_at_once(place):
    log = str(place.out / "gpu_check.log")
    code = f"print('here', flush=True); print('here\\n' in open({log!r}).read())"
    place.until = time.monotonic() + 20
    assert place.python("-c", code).output == "here\nTrue\n"


def test_an_interrupted_stage_is_kept_and_the_rest_is_skipped(place, kept):
    """Output that the program has printed by then is kept too."""
    end_parent = "import os, signal; print('on', flush=True); os.kill(os.getppid(), signal.SIGINT)"

    def do(place):
        place.python("-c", f"{end_parent}; import time; time.sleep(60)")

    stages = stage(lambda place: {}, "first"), stage(do, "second"), stage(do, "third")
    content = run(place, kept, *stages)
    reasons = [each.get("reason") for each in content["stages"].values()]
    assert reasons == [None, "interrupted", "no time was left for it"]
    assert content["stages"]["second"]["output"].startswith("on\n")


def test_an_interrupt_while_a_program_starts_keeps_its_output(place, kept, monkeypatch):
    def start(words, *, stdout, **settings):
        stdout.write(b"on\n")
        raise KeyboardInterrupt

    def do(place):
        with monkeypatch.context() as patch:
            patch.setattr("subprocess.Popen", start)
            place.python("-c", "")

    content = run(place, kept, stage(do))
    assert content["stages"]["stage"]["output"] == "on\n"


def test_a_second_run_adds_to_the_record_of_the_first(place, kept, tmp_path):
    def measured(place):
        place.figures.write_text('{"way":"call"}\n', encoding="utf-8")
        return {}

    run(place, kept, stage(measured, "first"), stage(lambda place: {}, "second"))
    again = record.Record(kept.path, ROOT)
    content = run(place, again, stage(raising(SkippedError("no GPU")), "second"))
    assert {name: each["status"] for name, each in content["stages"].items()} == {
        "first": "passed",
        "second": "skipped",
    }
    again = record.Record(kept.path, ROOT)
    content = run(place, again, stage(measured, "first"))
    assert content["figures"] == [{"way": "call", "stage": "first"}]
    other = kept.path.read_text(encoding="utf-8").replace('"gpus": []', '"gpus": ["another"]')
    kept.path.write_text(other, encoding="utf-8")
    assert record.Record(kept.path, ROOT).content["stages"] == {}


def test_figures_outlive_their_program(place, kept):
    def do(place):
        text = '{"way":"call","us":{"ours":[1.5]}}\n{"way":"ca'
        place.figures.write_text(text, encoding="utf-8")
        raise FailedError("killed")

    content = run(place, kept, stage(do))
    assert content["figures"] == [{"way": "call", "us": {"ours": [1.5]}, "stage": "stage"}]


def test_what_comes_after_a_vital_stage_that_fails_is_skipped(place, kept):
    content = run(
        place,
        kept,
        stage(raising(FailedError("no wheel")), "install", is_vital=True),
        stage(lambda place: {}, "import", is_vital=True),
        stage(lambda place: {}, "tests"),
    )
    reasons = [each["reason"] for each in content["stages"].values()]
    assert reasons == ["no wheel", *["install has not passed"] * 2]


def test_the_command_lists_its_stages(capsys):
    assert gpu_check.main(["--out", "unused", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert [line.split()[0] for line in shown.splitlines()] == [s.name for s in stages.STAGES]
    assert not Path("unused").exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--stages", "import,smoke"], ["install", "import", "smoke"]),
        (["--stages", "facts"], ["facts"]),
        (["--stages", "torch,smoke", "--part", "2"], ["install", "torch"]),
        (["--stages", "facts", "--budget", "3", "--from-wheels", "."], ["facts"]),
    ],
)
def test_chosen_stages_have_what_they_need(words, expected, capsys):
    assert gpu_check.main(["--out", "unused", "--dry-run", *words]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == expected


def test_the_parts_are_all_stages(capsys):
    shown = []
    for part in stages.PARTS:
        assert gpu_check.main(["--out", "unused", "--dry-run", "--part", str(part)]) == 0
        lines = capsys.readouterr().out.splitlines()
        shown += [line.split()[0] for line in lines]
    assert [name for name in shown if name != "install"] == [
        each.name for each in stages.STAGES if each.name != "install"
    ]


def test_an_unknown_stage_is_named(capsys):
    with pytest.raises(SystemExit):
        gpu_check.main(["--out", "unused", "--stages", "instal"])
    assert "'instal' is none of facts, install" in capsys.readouterr().err


def test_limits_fit_the_budget():
    """A part ends within 330 seconds, of which a wheel is installed in ten."""
    for part in stages.PARTS:
        limits = [s.limit for s in stages.STAGES if s.part == part and s.name != "install"]
        assert 10 + sum(limits) <= gpu_check.BUDGET_OF_PART < 330 - workplace.GRACE
    assert gpu_check.BUDGET < 600 - workplace.GRACE


@pytest.mark.parametrize("words", [["--from-wheels", "nowhere"], ["--part", "3"]])
def test_wrong_words_are_refused_before_any_work(words, tmp_path):
    with pytest.raises(SystemExit):
        gpu_check.main(["--out", str(tmp_path / "out"), *words])
    assert not (tmp_path / "out").exists()


def test_the_command_says_what_is_missing(tmp_path):
    """As on a machine without a network and without what the package is built with."""
    (tmp_path / "pip.py").write_text("raise SystemExit(3)\n")
    command = [sys.executable, ROOT / "tools/gpu_check.py", "--out", tmp_path / "out"]
    done = subprocess.run(
        [*command, "--stages", "install,import"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    content = json.loads((tmp_path / "out/gpu_check.json").read_text(encoding="utf-8"))
    assert content["stages"]["install"]["status"] == "failed"
    assert content["stages"]["import"]["status"] == "skipped"
    assert content["format"] == record.FORMAT
    assert (tmp_path / "out/gpu_check.log").exists()
    assert "failed" in done.stdout
