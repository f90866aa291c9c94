"""Programs that the stages of `tools/gpu_check.py` start, and what they make of the output."""

import time
from pathlib import Path

import pytest

from gpu_checks import install, stages, workplace
from gpu_checks.workplace import Done, FailedError, SkippedError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def place(tmp_path):
    with workplace.Workplace(ROOT, tmp_path, budget=60) as made:
        made.until = time.monotonic() + 60
        yield made


@pytest.fixture
def prepared(place, tmp_path):
    """A folder with a wheel that is none, and a probe that prints one figure."""
    place.wheels = tmp_path / "wheels"
    place.wheels.mkdir()
    (place.wheels / "tensor_ops_cuda-0.1.0-cp399-cp399-linux_x86_64.whl").write_text("none")
    lines = "#!/bin/sh", 'echo \'{"what": "barrier", "us": 1.5}\'', "echo done"
    (place.wheels / "barrier_probe").write_text("\n".join(lines))
    return place.wheels


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
    for words in (first, second):
        assert words[words.index("-m", 2) + 1] == "not compiles"
    files = {path.name for path in (ROOT / stages.PACKAGE / "tests").glob("test_decode*.py")}
    assert {Path(word).name for word in second} >= files
    assert "test_decode_llama.py" in files
    assert (place.site / "tensor_ops_decode").is_dir()


def test_decode_is_skipped_where_its_package_cannot_be_imported(place, monkeypatch):
    monkeypatch.setattr(stages, "DECODE_NEEDS", ("jinja2", "none_such"))
    for stage in (stages.smoke, stages.decode, stages.decode_sanitizers, stages.decode_benchmark):
        with pytest.raises(SkippedError, match="not installed: none_such"):
            stage(place)


def test_sanitizers_watch_a_test_that_is_there(place, monkeypatch):
    """One tool after another, each with its share of the time that is left."""
    given = []

    def running(words):
        given.append((words, place.until))
        return Done(0, "ERROR SUMMARY: 0 errors", 2.0)

    monkeypatch.setattr(stages.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(place, "run", running)
    began = time.monotonic()
    place.until = began + 40
    found = stages.decode_sanitizers(place)
    assert found == dict.fromkeys(stages.SANITIZERS, "0 errors, 2 s")
    assert [until - began for _, until in given] == pytest.approx([10, 40 / 3, 20, 40], abs=1)
    words = given[0][0]
    test = next(word for word in words if "::" in word)
    path, name = test.split("::")
    assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")
    assert words[:2] == ["/usr/bin/compute-sanitizer", "--tool"]


def test_what_measures_leaves_figures_until_its_time_is_up(place, monkeypatch):
    given = []

    def python(*words, **environment):
        given.append(words)
        path = words[words.index("--out") + 1]
        path.write_text('{"way": "decode"}\n', encoding="utf-8")
        return Done(2, "decode: its time was up\n", 9.0)

    monkeypatch.setattr(place, "python", python)
    place.until = time.monotonic() + 60
    for each in (stages.decode_benchmark, stages.decode_cases):
        assert each(place) == {"ended": "early"}
    assert [words[:2] for words in given] == [("-m", "gpu.decode")] * 2
    assert workplace.figures_of(place) == [{"way": "decode"}]


def test_a_pure_package_is_installed_without_its_build_backend(place):
    install.install(place, "tensor-ops")
    code = (
        "import tensor_ops, importlib.metadata as m\n"
        "print(tensor_ops.__file__, m.version('tensor-ops'))\n"
        "print(tensor_ops.get_backend_info('nki')['reason'])\n"
    )
    said = place.python("-c", code).output
    assert said.startswith(str(place.site))
    assert "install it from a clone: " in said


def test_architectures_are_cmakes():
    """Machine code and PTX, since get_cuda_info() names both."""
    assert install.architecture("9.0") == "90"
    assert install.architecture("12.0") == "120"


def test_a_wheel_that_cannot_be_imported_is_built_instead(place, prepared, monkeypatch):
    """That of another Python, whose reason is kept."""
    monkeypatch.setattr(install, "BUILD_REQUIREMENTS", {"none_such": "none-such"})
    with pytest.raises(FailedError, match="missing: none-such"):
        install.install_backend(place)
    assert "is not a supported wheel" in place.details["wheel"]


def test_a_folder_without_a_wheel_is_an_error(place, prepared):
    next(prepared.glob("*.whl")).unlink()
    with pytest.raises(FailedError, match="prepare that folder"):
        install.install_backend(place)


def test_the_prepared_probe_needs_no_compiler(place, prepared):
    """Nor that it can still be executed, which may be lost where files are copied."""
    assert stages.barriers(place) == {"figures": [{"what": "barrier", "us": 1.5}]}


def test_a_probe_that_fails_says_why(place, prepared):
    (prepared / "barrier_probe").write_text(
        "#!/bin/sh\necho '{\"us\": 1}'; echo out of memory; exit 1"
    )
    with pytest.raises(FailedError, match="out of memory"):
        stages.barriers(place)
    assert place.details["figures"] == [{"us": 1}]


@pytest.mark.parametrize("stage", [stages.interop, stages.smoke])
def test_checks_that_fail_are_named_beside_those_that_passed(place, monkeypatch, stage):
    output = (
        "passed one: 1e-6\nfailed two: AssertionError: wrong\nTraceback\nskipped three: no GPU\n"
    )
    monkeypatch.setattr(place, "python", lambda *words: Done(1, output, 1.0))
    with pytest.raises(FailedError, match="two: AssertionError: wrong"):
        stage(place)
    assert place.details["checks"] == {
        "one: 1e-6": "passed",
        "two: AssertionError: wrong": "failed",
        "three: no GPU": "skipped",
    }
