"""Backends of other distributions, really installed: the good work, the bad disable themselves."""

import importlib.util
import json
import shutil
import sys
from pathlib import Path

import pytest

# Why each bad backend of packages/ is unavailable.
BAD = {
    "broken": "importing broken_backend failed: ImportError: libabacus.so.7: cannot open",
    "contested": "contested-one (contested_one) and contested-two (contested_two) claim this name",
    "eager": "importing eager_backend failed: BackendError: backend 'eager' cannot be used yet",
    "no_device": "the driver found no abacus",
    "old": "old-backend has API_VERSION 0 and this tensor-ops wants 1; "
    "install versions of both that go together",
    "quitting": "importing quitting_backend failed: SystemExit: no licence for this machine",
    "raising_probe": "its probe() failed: OSError: the driver is of another version",
}
# Available, but of no use: every question but probe() fails.
LYING = "lying"
ALL = ",".join([*BAD, LYING, "good", "python"])
PACKAGES = {path.name for path in Path(__file__).with_name("packages").iterdir()}

CALL = """
    import numpy as np, tensor_ops
    x = np.linspace(-3, 3, 6, dtype="float32").reshape(2, 3)
    result = tensor_ops.silu(x)
    np.testing.assert_allclose(result, x / (1 + np.exp(-x)), rtol=1e-6)
    import good_backend
    print(tensor_ops.get_backend(), *good_backend.calls)
"""


class TestGood:
    @pytest.mark.parametrize("variable", ["FORCE_BACKEND", "BACKEND"])
    def test_forced_and_preferred(self, environment, variable):
        assert environment.output(CALL, **{variable: "good"}) == "good silu"

    def test_first_in_the_priority(self, environment):
        assert environment.output(CALL, BACKEND_PRIORITY="cuda,good,python") == "good silu"

    def test_after_python_in_the_priority(self, environment):
        assert environment.output(CALL, BACKEND_PRIORITY="python,good") == "python"

    def test_in_the_configuration_file(self, environment, tmp_path):
        file = tmp_path / "backend.json"
        file.write_text(json.dumps({"preferred_backend": "good"}))
        assert environment.output(CALL, CONFIG=str(file)) == "good silu"

    def test_named_on_the_call_in_a_context_and_as_the_default(self, environment):
        code = """
            import numpy as np, tensor_ops
            x = np.ones(3, "float32")
            tensor_ops.silu(x, backend="good")
            import good_backend
            print(len(good_backend.calls))
            with tensor_ops.use_backend("good"):
                tensor_ops.silu(x)
            print(len(good_backend.calls))
            tensor_ops.set_default_backend("good")
            tensor_ops.silu(x)
            print(len(good_backend.calls))
        """
        assert environment.output(code, BACKEND_PRIORITY="python").split() == ["1", "2", "3"]

    def test_what_it_lacks_is_passed_on_when_it_is_preferred(self, environment):
        code = """
            import numpy as np, tensor_ops, good_backend
            for dtype in ("float32", "float16", "float64"):
                x = np.ones((2, 3), dtype)
                tensor_ops.silu(x)
                tensor_ops.rms_norm(x, x[0])
                print(len(good_backend.calls), tensor_ops.explain("silu", x).backend)
            print(tensor_ops.explain("silu", x).steps[0].reason)
        """
        output = environment.output(code, BACKEND="good", BACKEND_PRIORITY="python").splitlines()
        assert output == ["2 good", "4 good", "4 python", "no float64 on an abacus"]

    def test_what_it_lacks_is_an_error_when_it_is_forced(self, environment):
        code = "import numpy, tensor_ops; tensor_ops.silu(numpy.ones(1))"
        done = environment.run(code, FORCE_BACKEND="good")
        assert done.returncode == 1
        assert (
            "no backend can run float64 on cpu (force by TENSOR_OPS_FORCE_BACKEND)" in done.stderr
        )
        assert "good: no float64 on an abacus" in done.stderr

    def test_out(self, environment):
        code = """
            import numpy as np, tensor_ops
            x = np.ones(3, "float32")
            print(tensor_ops.silu(x, out=x) is x, np.allclose(x, 0.7310586))
        """
        assert environment.output(code, FORCE_BACKEND="good") == "True True"

    def test_its_facts(self, environment):
        code = "import json, tensor_ops; print(json.dumps(tensor_ops.get_backend_info('good')))"
        facts = json.loads(environment.output(code))
        assert facts["display_name"] == "A good backend"
        assert facts["ops"] == ["rms_norm", "silu"]
        assert (facts["reason"], facts["max_memory"]) == (None, 0)
        assert "beads" not in facts

    def test_it_is_not_imported_before_it_is_asked_for(self, environment):
        code = f"""
            import sys, numpy as np, tensor_ops
            tensor_ops.silu(np.ones(1))
            tensor_ops.get_available_backends()
            assert "good" in tensor_ops.list_backends()
            print(*sorted(set(sys.modules) & {PACKAGES}))
        """
        assert environment.output(code) == ""

    def test_works_without_tensor_ops(self, environment):
        code = """
            import sys, numpy as np, good_backend
            good_backend.silu(np.ones(1))
            print("tensor_ops" in sys.modules)
        """
        assert environment.output(code) == "False"


class TestBad:
    """Each disables itself only, with the reason kept."""

    def test_every_other_backend_runs(self, environment):
        done = environment.run(CALL, BACKEND_PRIORITY=ALL)
        assert (done.returncode, done.stdout.strip()) == (0, "lying silu")
        warning = done.stderr
        assert warning.count("BackendFallbackWarning") == 2
        assert "Running on 'lying' instead" in warning
        assert "silu: backend 'lying': it failed when asked for silu: OSError" in warning
        # Installed and failing is worth a word; having no device is not.
        for name in BAD:
            assert (f"backend {name!r} is installed but" in warning) is (name != "no_device")

    @pytest.mark.parametrize("name", BAD)
    def test_forced_it_ends_the_import_with_the_reason(self, environment, name):
        done = environment.run("import tensor_ops", FORCE_BACKEND=name)
        assert done.returncode == 1
        error = done.stderr.splitlines()[-1]
        assert f"BackendUnavailableError: backend {name!r} (forced by" in error
        assert BAD[name] in error

    @pytest.mark.parametrize("name", BAD)
    def test_preferred_it_falls_back_with_the_reason(self, environment, name):
        code = "import tensor_ops; print(tensor_ops.get_backend())"
        done = environment.run(code, BACKEND=name, BACKEND_PRIORITY="good")
        assert (done.returncode, done.stdout) == (0, "good\n")
        assert done.stderr.count("BackendFallbackWarning") == 1
        assert BAD[name] in done.stderr

    def test_every_reason_is_listed(self, environment):
        code = "import tensor_ops; tensor_ops.list_backends(verbose=True)"
        lines = environment.output(code, BACKEND_PRIORITY=ALL).splitlines()
        shown = dict(line.split(maxsplit=1) for line in lines)
        for name, reason in BAD.items():
            assert shown[name].startswith(f"unavailable: {reason}"), name
        assert shown["good"] == "available: A good backend 1.2.3 on an abacus"
        assert shown["lying"] == (
            "available: lying; its info() failed: SystemExit: info() ends the process"
        )

    def test_every_reason_is_explained(self, environment):
        code = """
            import json, numpy as np, tensor_ops
            explanation = tensor_ops.explain("silu", np.ones(1, "float32"))
            print(explanation)
            print(json.dumps(explanation.as_dict()))
        """
        *text, as_dict = environment.output(code, BACKEND_PRIORITY=ALL).splitlines()
        steps = {step["backend"]: step["reason"] for step in json.loads(as_dict)["steps"]}
        assert list(steps) == [*BAD, "lying", "good"]
        for name, reason in BAD.items():
            assert steps[name].startswith(reason), name
            assert f"  {name}: {steps[name]}" in text
        assert steps["lying"].endswith("OSError: supports() lost its device")
        assert steps["good"] is None

    def test_none_is_available_but_the_one_that_says_so(self, environment):
        code = "import tensor_ops; print(*tensor_ops.get_available_backends(runs_programs=False))"
        assert environment.output(code, BACKEND_PRIORITY=ALL) == "lying good python"

    def test_the_facts_of_a_bad_one_have_the_same_keys(self, environment):
        code = f"""
            import json, tensor_ops
            keys = list(tensor_ops.get_backend_info("python"))
            for name in {[*BAD, LYING]}:
                facts = tensor_ops.get_backend_info(name)
                assert list(facts) == keys, name
                assert facts["name"] == name
                assert facts["available"] == (name == "lying")
                assert facts["reason"], name
            print(tensor_ops.get_backend_info("no_device")["display_name"])
        """
        assert environment.output(code) == "No device"

    def test_the_exception_is_the_cause_of_the_error(self, environment):
        code = """
            import tensor_ops
            try:
                tensor_ops.set_default_backend("broken")
            except tensor_ops.BackendUnavailableError as error:
                print(repr(error.__cause__))
        """
        assert environment.output(code).startswith("ImportError('libabacus.so.7")

    def test_a_bad_one_named_directly_fails_by_itself(self, environment):
        done = environment.run("import eager_backend", FORCE_BACKEND="eager")
        assert done.returncode == 1
        error = done.stderr.splitlines()[-1]
        assert "eager_backend is still being imported, and that import itself asks" in error


def test_threads_that_import_a_backend_and_select_it_do_not_wait_for_each_other(environment):
    """One thread is within the import, which will call an op, when others make a first call."""
    code = """
        import sys, threading, time, numpy as np, tensor_ops
        def import_it():
            import self_testing_backend
        def select():
            tensor_ops.silu(np.ones(3, "float32"))
        targets = [import_it, select, select]
        threads = [threading.Thread(target=target, daemon=True) for target in targets]
        threads[0].start()
        while "self_testing_backend" not in sys.modules:
            time.sleep(0.001)
        for thread in threads[1:]: thread.start()
        for thread in threads: thread.join(30)
        print(*(thread.is_alive() for thread in threads), tensor_ops.get_backend())
    """
    output = environment.output(code, BACKEND_PRIORITY="self_testing,python")
    assert output == "False False False self_testing"


def test_unreadable_metadata_of_another_distribution_hides_no_backend(environment, tmp_path):
    metadata = tmp_path / "unreadable-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: unreadable\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[console_scripts]\nno equals sign\n")
    code = f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import tensor_ops
        print(tensor_ops.get_backend())
    """
    assert environment.output(code, BACKEND="good") == "good"


def test_a_backend_installed_meanwhile_is_found_by_reload(empty_environment, installer):
    code = f"""
        import subprocess, tensor_ops
        try:
            tensor_ops.set_default_backend("good")
        except tensor_ops.ConfigError:
            print("unknown")
        subprocess.run({installer(empty_environment.python)!r}, check=True)
        tensor_ops.reload_config()
        tensor_ops.set_default_backend("good")
        print(tensor_ops.get_backend())
    """
    assert empty_environment.output(code).split() == ["unknown", "good"]


@pytest.fixture
def installer(tmp_path):
    """Return the command that installs good_backend as a user would: with pip or uv."""
    pytest.importorskip("hatchling", reason="hatchling builds the package")
    package = tmp_path / "good_backend"
    shutil.copytree(Path(__file__).with_name("packages") / package.name, package)
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", str(package)]
    if importlib.util.find_spec("pip"):
        pip = [sys.executable, "-m", "pip"]
        return lambda python: [*pip, "--python", str(python), "install", *options]
    uv = shutil.which("uv") or pytest.skip("neither pip nor uv is here")
    return lambda python: [uv, "pip", "install", "--python", str(python), *options]
