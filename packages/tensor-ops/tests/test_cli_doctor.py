"""``tensor-ops test_capabilities``, also ``doctor``: what is there, what runs, and why."""

import json
import os
import re
import subprocess
import sys
from functools import cache

import pytest

import tensor_ops
from tensor_ops import backends, config
from tensor_ops.__main__ import main
from tensor_ops.backends.names import KNOWN
from tensor_ops.config.location import ENV_CONFIG

VARIABLES = (ENV_CONFIG, config.ENV_FORCE, config.ENV_PREFERRED, config.ENV_PRIORITY)


@pytest.fixture
def path(config_file):
    return config_file


@pytest.fixture
def doctor(capsys):
    """Run the command with --json and return its exit status and what it found."""

    def run(*arguments):
        status = main(["doctor", "--json", *arguments])
        out, err = capsys.readouterr()
        assert err == ""
        return status, json.loads(out)

    return run


def backend(found, name):
    return next(each for each in found["backends"] if each["name"] == name)


def test_machine_and_tools(doctor):
    status, found = doctor()
    assert status == 0
    machine = found["machine"]
    assert machine["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["executable"] == sys.executable
    assert 1 <= machine["usable_cpus"] <= machine["logical_cpus"]
    assert machine["memory"] is None or machine["memory"] > 2**20
    assert {tool["backend"] for tool in found["tools"].values()} == {"cpp", "cuda", "opencl"}


def test_tools_are_looked_for_where_the_builds_look(doctor, monkeypatch, tmp_path):
    compiler = tmp_path / "bin" / "my++"
    compiler.parent.mkdir()
    compiler.write_text("#!/bin/sh\necho 'my++ 1.2'\n")
    compiler.chmod(0o755)
    (tmp_path / "mine.icd").touch()
    monkeypatch.setenv("CXX", f"{compiler} -O2")
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    tools = doctor()[1]["tools"]
    assert tools["C++ compiler"]["path"] == str(compiler)
    assert tools["C++ compiler"]["version"] == "my++ 1.2"
    assert tools["OpenCL drivers"]["path"].split(", ")[0] == str(tmp_path / "mine.icd")


def test_loader_of_pyopencl_is_found(doctor, monkeypatch, tmp_path):
    package = tmp_path / "pyopencl"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
    monkeypatch.setattr("sys.path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "pyopencl", raising=False)
    assert doctor()[1]["tools"]["OpenCL loader"]["path"] == str(package)


def test_it_needs_no_place_for_temporary_files(doctor, monkeypatch):
    def find_library(name):
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr("ctypes.util.find_library", find_library)
    status, found = doctor()
    assert status == 0
    assert "OpenCL loader" in found["tools"]


def test_every_known_backend_has_its_status(doctor):
    _, found = doctor()
    assert {each["name"] for each in found["backends"]} >= set(KNOWN)
    assert backend(found, "python")["available"] is True
    tpu = backend(found, "tpu")
    assert (tpu["available"], tpu["installed"]) == (False, False)
    packages = "./packages/tensor-ops-devices ./packages/tensor-ops-torch"
    assert tpu["install"] == f"pip install {packages}"
    assert tpu["reason"] == tensor_ops.get_backend_info("tpu")["reason"]


def test_kept_exception_is_shown(doctor, monkeypatch):
    error = ImportError("libtpu.so: cannot open shared object file")
    broken = backends.Backend("tpu", None, "importing tensor_ops_tpu failed", error)
    monkeypatch.setitem(backends.loaded, "tpu", broken)
    status, found = doctor()
    assert status == 0
    assert backend(found, "tpu")["reason"] == "importing tensor_ops_tpu failed"
    assert backend(found, "tpu")["exception"] == f"ImportError: {error}"


@pytest.mark.parametrize(
    ("says", "shown"),
    [
        (lambda: "levels=neon decode=off", "levels=neon decode=off"),
        (lambda: 1 / 0, "its configuration() failed: ZeroDivisionError: division by zero"),
        (None, None),
    ],
)
def test_what_a_backend_was_compiled_for_is_shown(says, shown, doctor, monkeypatch, capsys):
    monkeypatch.setattr(backends.numpy_backend, "configuration", says, raising=False)
    assert backend(doctor()[1], "python")["configuration"] == shown
    main(["doctor"])
    assert shown is None or f", with {shown}" in capsys.readouterr().out


def test_installed_backend_outside_the_priority_is_not_imported(doctor, path, monkeypatch):
    def refuse(name):
        assert name != "cuda", "imported"
        return load(name)

    load = backends.load
    monkeypatch.setattr(backends, "INSTALLED", ("cuda",))
    monkeypatch.setattr(backends, "load", refuse)
    path.write_text('{"backend_priority": ["python"]}')
    status, found = doctor()
    assert status == 0
    assert backend(found, "cuda")["available"] is None
    assert "--require" in backend(found, "cuda")["reason"]


@pytest.mark.parametrize("where", ["file", "option"])
def test_backend_with_a_kind_of_device_is_looked_at(doctor, path, where, monkeypatch):
    monkeypatch.setattr(backends, "INSTALLED", ("cuda",))
    force = ', "force_backend": "cuda:gpu"' if where == "file" else ""
    path.write_text('{"backend_priority": ["python"]' + force + "}")
    status, found = doctor(*(["--require=cuda:gpu"] if where == "option" else []))
    assert (status, backend(found, "cuda")["available"]) == (1, False)


def test_where_each_setting_comes_from(doctor, path, monkeypatch):
    path.write_text('{"force_backend": "numpy"}')
    monkeypatch.setenv(config.ENV_PREFERRED, "tpu")
    status, found = doctor()
    assert status == 0
    assert found["configuration"]["file"] == str(path)
    assert found["configuration"]["settings"] == {
        "preferred_backend": {
            "value": "tpu",
            "source": "TENSOR_OPS_BACKEND",
            "overridden_by": str(path),
        },
        "backend_priority": {
            "value": ["cuda", "opencl", "cpp", "python"],
            "source": "the built-in default",
            "overridden_by": None,
        },
        "force_backend": {
            "value": "python",
            "source": str(path),
            "overridden_by": None,
        },
    }
    assert found["selection"] == {
        "backend": "python",
        "mode": "force",
        "decided_by": str(path),
        "steps": [{"backend": "python", "reason": None}],
        "times": None,
    }


def test_order_that_a_force_leaves_no_use_for(doctor, path, monkeypatch):
    path.write_text('{"force_backend": "python"}')
    monkeypatch.setenv(config.ENV_PRIORITY, "cpp,python")
    _, found = doctor()
    setting = found["configuration"]["settings"]["backend_priority"]
    assert (setting["source"], setting["overridden_by"]) == (config.ENV_PRIORITY, str(path))


def test_fallback_is_no_failure(doctor, path):
    path.write_text('{"preferred_backend": "tpu", "backend_priority": ["python"]}')
    status, found = doctor()
    assert (status, found["problems"]) == (0, [])
    assert found["selection"]["backend"] == "python"
    assert found["selection"]["steps"][0]["backend"] == "tpu"


def test_missing_forced_backend_is_reported_and_fails(doctor, path):
    path.write_text('{"force_backend": "tpu"}')
    status, found = doctor()
    assert status == 1
    assert found["selection"]["backend"] is None
    assert len(found["problems"]) == 1
    reason = tensor_ops.get_backend_info("tpu")["reason"]
    assert f"no backend can run (force by {path}): tpu: {reason}" in found["problems"][0]


@pytest.mark.parametrize("text", ["{", '{"prefered_backend": "cpp"}'])
def test_broken_file_is_reported_and_fails(doctor, path, text):
    path.write_text(text)
    status, found = doctor()
    assert status == 1
    assert found["configuration"]["file"] == str(path)
    assert found["selection"] is None
    assert found["problems"] == found["configuration"]["problems"]
    assert found["problems"][0].startswith(f"{path}:1: ")
    assert backend(found, "python")["available"] is True
    assert path.read_text() == text


def test_every_problem_is_reported(doctor, monkeypatch, tmp_path):
    monkeypatch.setenv(ENV_CONFIG, str(tmp_path / "missing.json"))
    monkeypatch.setenv(config.ENV_FORCE, "cdua")
    status, found = doctor("--require=tpu")
    assert status == 1
    assert ["missing.json" in found["problems"][0], "cdua" in found["problems"][1]] == [True, True]
    assert found["problems"][2].startswith("backend 'tpu' (--require) is unavailable: ")


def test_require(doctor):
    assert doctor("--require", "python", "--require=numpy")[0] == 0
    status, found = doctor("--require", "python", "--require", "tpu", "--require", "nki")
    assert status == 1
    assert [re.search("'(.*?)'", problem)[1] for problem in found["problems"]] == ["tpu", "nki"]


def test_require_of_an_unknown_name_is_a_usage_error(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["doctor", "--require=pyhton"])
    assert caught.value.code == 2
    assert "did you mean 'python'" in capsys.readouterr().err


def test_text_has_the_same_facts(path, capsys):
    path.write_text('{"preferred_backend": "tpu", "backend_priority": ["python"]}')
    assert main(["test_capabilities", "--require=tpu"]) == 1
    text = capsys.readouterr().out
    reason = re.escape(tensor_ops.get_backend_info("tpu")["reason"])
    for line in (
        r"  Python +3\.",
        r"  C\+\+ compiler ",
        rf"  tpu +unavailable: {reason}$",
        r"  python +available: Python \(NumPy\) ",
        rf"  preferred_backend +tpu  \(from {path}\)$",
        r"  force_backend +None  \(from the built-in default\)$",
        rf"  python runs, decided by {path} \(preferred\)$",
        r"    python: chosen$",
        rf"  backend 'tpu' \(--require\) is unavailable: {reason}$",
    ):
        assert re.search(f"^{line}", text, re.M), line


def test_text_of_a_broken_configuration(path, capsys):
    path.write_text("[]")
    assert main(["doctor"]) == 1
    text = capsys.readouterr().out
    assert "tensor_ops raises ConfigError until the configuration is mended" in text
    assert f"\n\nProblems\n  {path}:1: expected a JSON object" in text


@pytest.mark.parametrize("start", ["module", "script"])
def test_it_starts_whatever_is_configured(start, tmp_path):
    script = os.path.join(os.path.dirname(sys.executable), "tensor-ops")
    command = [sys.executable, "-m", "tensor_ops"] if start == "module" else [script]
    broken = tmp_path / "broken.json"
    broken.write_text('{"force_backend": "cdua"}')
    for environ in (
        {config.ENV_FORCE: "tpu"},
        {ENV_CONFIG: str(broken)},
        {ENV_CONFIG: str(tmp_path / "missing.json")},
        {config.ENV_PRIORITY: ","},
    ):
        done = subprocess.run(
            [*command, "doctor", "--json"],
            capture_output=True,
            text=True,
            env=os.environ | environ,
            timeout=120,
            check=False,
        )
        assert (done.returncode, done.stderr) == (1, "")
        assert len(json.loads(done.stdout)["problems"]) == 1


@pytest.mark.parametrize("name", ["doctor", "test_capabilities"])
def test_help_has_the_name_that_was_called(name, capsys):
    with pytest.raises(SystemExit):
        main([name, "--help"])
    assert capsys.readouterr().out.startswith(f"usage: tensor-ops {name} [-h]")


@pytest.mark.parametrize(
    ("points", "variables", "advised"),
    [
        ({}, {}, True),
        # It is broken or outdated, which is said of it; or NumPy was asked for.
        ({"cpp": ()}, {}, False),
        ({}, {config.ENV_FORCE: "python"}, False),
        ({}, {config.ENV_PREFERRED: "python"}, False),
    ],
)
def test_where_numpy_is_all_there_is_it_says_how_to_be_faster(
    points, variables, advised, doctor, monkeypatch, capsys
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(backends, "installed_points", cache(lambda: points))
    monkeypatch.setattr(backends, "loaded", {})
    status, found = doctor()
    assert (status, found["selection"]["backend"]) == (0, "python")
    command = backend(found, "cpp")["install"]
    advice = f"NumPy computes; the C++ backend is faster on CPUs: {command}"
    assert found["advice"] == (advice if advised else None)
    main(["doctor"])
    assert capsys.readouterr().out.endswith(f"\n\nAdvice\n  {advice}\n") is advised
