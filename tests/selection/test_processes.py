"""Selection as a user meets it: new processes with a configuration file and an environment."""

import sys
from pathlib import Path
from textwrap import dedent

import pytest

import tensor_ops
from tensor_ops import backends

IMPORT = "import tensor_ops"
CALL = "import numpy, tensor_ops; tensor_ops.silu(numpy.ones(1))"
BACKEND = "import tensor_ops; print(tensor_ops.get_backend())"
OURS = ("tensor_ops_cpp", "tensor_ops_opencl", "tensor_ops_cuda", "tensor_ops_torch")
LOADED = f"import sys; print(*sorted(set(sys.modules) & set({OURS})))"


@pytest.fixture(params=["cuda", "nki"])
def absent(request):
    """A backend that this machine does not have."""
    if tensor_ops.is_backend_available(request.param):
        pytest.skip(f"{request.param} is available here")
    return request.param


def reason(absent):
    """Return why a backend is not there, which depends on what is installed beside tensor_ops."""
    return tensor_ops.get_backend_info(absent)["reason"]


@pytest.fixture(params=["environment", "file"])
def configure(request, processes):
    """Set force, preferred or priority in one of the two places, and return its name."""

    def configure(*, force=None, preferred=None, priority=None):
        if request.param == "file":
            keys = {
                "force_backend": force,
                "preferred_backend": preferred,
                "backend_priority": priority,
            }
            processes.write(**{key: value for key, value in keys.items() if value is not None})
            return str(processes.file)
        priority = priority and ",".join(priority)
        processes.environment(FORCE_BACKEND=force, BACKEND=preferred, BACKEND_PRIORITY=priority)
        return "TENSOR_OPS_" + ("FORCE_BACKEND" if force else "BACKEND")

    return configure


class TestForce:
    def test_a_missing_backend_ends_the_import(self, absent, configure, processes):
        source = configure(force=absent)
        error = processes.error(IMPORT)
        assert error.startswith("tensor_ops.errors.BackendUnavailableError: ")
        assert f"backend {absent!r} (forced by {source}) is unavailable: {reason(absent)}" in error
        assert ("no module named 'tensor_ops_cuda'" in error) is (absent == "cuda")

    def test_an_available_backend_runs_alone(self, configure, processes):
        configure(force="python", priority=["cpp"])
        assert processes.output(f"{BACKEND}; {LOADED}") == "python"

    def test_goes_before_a_preference(self, configure, processes):
        configure(force="python", preferred="cpp")
        assert processes.output(f"{BACKEND}; {LOADED}") == "python"

    def test_the_error_is_an_import_error_and_a_runtime_error(self, processes):
        processes.environment(FORCE_BACKEND="nki")
        for kind in ("ImportError", "RuntimeError"):
            assert processes.output(f"try: {IMPORT}\nexcept {kind}: print('caught')") == "caught"

    def test_an_import_after_the_cause_is_gone_succeeds(self, processes):
        processes.environment(FORCE_BACKEND="nki")
        code = """
            import os
            try:
                import tensor_ops
            except ImportError as error:
                print(error.name)
            os.environ["TENSOR_OPS_FORCE_BACKEND"] = "python"
            import tensor_ops
            print(tensor_ops.get_backend())
        """
        assert processes.output(dedent(code)).split() == ["nki", "python"]

    def test_an_import_after_an_interrupted_one_starts_afresh(self, processes):
        processes.environment(FORCE_BACKEND="cpp")
        code = """
            import os
            from importlib.metadata import EntryPoint
            def interrupt(self):
                raise KeyboardInterrupt
            load, EntryPoint.load = EntryPoint.load, interrupt
            try:
                import tensor_ops
            except KeyboardInterrupt:
                print("interrupted")
            EntryPoint.load = load
            os.environ["TENSOR_OPS_FORCE_BACKEND"] = "python"
            import tensor_ops
            print(tensor_ops.get_backend())
        """
        if "cpp" not in backends.INSTALLED:
            pytest.skip("cpp is not installed here")
        assert processes.output(dedent(code)).split() == ["interrupted", "python"]

    def test_reload_puts_it_into_force_and_takes_it_back(self, processes):
        code = """
            import os, numpy, tensor_ops
            def attempt(function):
                try:
                    function()
                except tensor_ops.BackendUnavailableError as error:
                    print(error.name)
            call = lambda: tensor_ops.silu(numpy.ones(1))
            call()
            os.environ["TENSOR_OPS_FORCE_BACKEND"] = "nki"
            call()  # nothing is read before reload_config()
            attempt(tensor_ops.reload_config)
            attempt(call)
            attempt(tensor_ops.get_backend)
            del os.environ["TENSOR_OPS_FORCE_BACKEND"]
            attempt(call)
            tensor_ops.reload_config()
            call()
        """
        assert processes.output(dedent(code)).split() == ["nki"] * 4


class TestPreferred:
    def test_a_missing_backend_falls_back_with_one_warning_at_the_users_line(
        self, absent, configure, processes
    ):
        source = configure(preferred=absent, priority=["python"])
        script = processes.directory / "script.py"
        script.write_text(
            "import numpy, tensor_ops\n"
            "x = numpy.ones(1)\n"
            "tensor_ops.silu(x)\n"
            "tensor_ops.silu(x.astype('f'))\n"
            "print(tensor_ops.get_backend())\n"
        )
        done = processes.run(f"import runpy; runpy.run_path({str(script)!r})", "-Walways")
        assert (done.returncode, done.stdout) == (0, "python\n")
        warning, line = done.stderr.strip().splitlines()
        assert warning.startswith(f"{script}:3: BackendFallbackWarning: backend {absent!r}")
        assert f"preferred by {source}, is unavailable: {reason(absent)}" in warning
        assert warning.endswith("Running on 'python' instead")
        assert line.strip() == "tensor_ops.silu(x)"

    def test_falls_back_along_the_priority(self, absent, configure, processes):
        configure(preferred=absent, priority=["nki", "cuda", "tpu", "python", "cpp"])
        done = processes.run(f"{BACKEND}; {LOADED}")
        assert done.stdout.split() == ["python"]

    def test_an_available_backend_runs_without_a_warning(self, configure, processes):
        configure(preferred="python")
        assert processes.output(f"{BACKEND}; {LOADED}") == "python"

    def test_a_priority_without_python_ends_with_python(self, configure, processes):
        configure(priority=["nki"])
        assert processes.output(BACKEND) == "python"

    def test_python_keeps_its_place_in_the_priority(self, configure, processes):
        configure(priority=["nki", "python", "cpp"])
        assert processes.output(f"{BACKEND}; {LOADED}") == "python"


class TestPlaces:
    def test_environment_goes_before_file(self, processes):
        processes.write(preferred_backend="nki")
        processes.environment(BACKEND="python")
        code = f"{BACKEND}; print(tensor_ops.get_backend_info()['decided_by'])"
        assert processes.output(code).split() == ["python", "TENSOR_OPS_BACKEND"]

    def test_an_empty_variable_says_nothing(self, processes):
        processes.write(force_backend="python")
        processes.environment(FORCE_BACKEND="", BACKEND=" ", BACKEND_PRIORITY="")
        code = f"{IMPORT}; print(tensor_ops.explain('silu').decided_by)"
        assert processes.output(code) == str(processes.file)

    def test_the_current_directory_is_not_searched(self, processes):
        processes.write(force_backend="nki")
        processes.environment(CONFIG=None)
        code = f"{IMPORT}; print(tensor_ops.get_backend_info()['config_file'])"
        assert processes.output(code) != str(processes.file)

    def test_a_named_file_that_is_missing_is_an_error(self, processes):
        processes.environment(CONFIG="elsewhere.json")
        error = processes.error(IMPORT)
        assert error.startswith("tensor_ops.errors.ConfigError: TENSOR_OPS_CONFIG names")
        assert "elsewhere.json" in error

    def test_prefix_goes_before_the_users_directory(self, processes):
        home, prefix = processes.directory / "home", processes.directory / "prefix"
        processes.environment(CONFIG=None)
        variables = ("HOME", "XDG_CONFIG_HOME", "USERPROFILE", "LOCALAPPDATA")
        processes.environ |= dict.fromkeys(variables, str(home))
        start = f"import sys; sys.prefix = {str(prefix)!r}; "
        ask = start + "import tensor_ops; print(tensor_ops.get_backend_info()['config_file'])"
        assert processes.output(ask) == "None"

        of_user = home / "tensor-ops"  # by XDG_CONFIG_HOME
        if sys.platform != "linux":
            code = "import platformdirs; print(platformdirs.user_config_path('tensor-ops', False))"
            of_user = processes.output(code)
        for directory in (of_user, prefix / "etc" / "tensor-ops"):
            file = Path(directory, "backend.json")
            file.parent.mkdir(parents=True)
            file.write_text("{}")
            assert processes.output(ask) == str(file)

    def test_reload_reads_file_and_environment_again(self, processes):
        processes.write(backend_priority=["python"])
        code = """
            import json, os, pathlib, tensor_ops
            def ask():
                info = tensor_ops.get_backend_info()
                print(info["decided_by"] == os.environ["TENSOR_OPS_CONFIG"] or info["decided_by"])
            ask()
            os.environ["TENSOR_OPS_BACKEND"] = "python"
            ask()
            tensor_ops.reload_config()
            ask()
            path = pathlib.Path(os.environ["TENSOR_OPS_CONFIG"])
            path.write_text("{")
            try:
                tensor_ops.reload_config()
            except tensor_ops.ConfigError:
                print("ConfigError")
            ask()  # as before
            path.write_text(json.dumps({"force_backend": "python"}))
            del os.environ["TENSOR_OPS_BACKEND"]
            tensor_ops.reload_config()
            ask()
        """
        expected = [
            "True",
            "True",
            "TENSOR_OPS_BACKEND",
            "ConfigError",
            "TENSOR_OPS_BACKEND",
            "True",
        ]
        assert processes.output(dedent(code)).split() == expected


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", 1, "not valid JSON"),
        ('{\n  "force_backend": null\n  "backend_priority": []\n}', 3, "not valid JSON"),
        ('{\n  "preferred_backend": cpp\n}', 2, "not valid JSON"),
        ("[]", 1, "expected a JSON object, got a list"),
        ('{\n\n  "prefered_backend": "cpp"\n}', 3, "did you mean 'preferred_backend'?"),
        ('{\n  "force_backend": "cudaa"\n}', 2, "did you mean 'cuda'?"),
        ('{\n  "force_backend": "CUDA"\n}', 2, "did you mean 'cuda'?"),
        ('{\n  "force_backend": "auto"\n}', 2, "must be one backend or null, not 'auto'"),
        ('{\n  "preferred_backend": "Auto"\n}', 2, "did you mean 'auto'?"),
        ('{\n  "preferred_backend": null\n}', 2, "got null"),
        ('{\n  "preferred_backend": 1\n}', 2, "got a number"),
        ('{\n  "backend_priority": "cpp"\n}', 2, "got a string"),
        ('{\n  "backend_priority": []\n}', 2, "empty list"),
        ('{\n  "backend_priority": ["cpp", 1]\n}', 2, "names alone, got a number at place 2"),
        ('{\n  "backend_priority": ["cpp", "auto"]\n}', 2, "'auto' is not a backend"),
        ('{\n  "backend_priority": ["cpp", "cpp"]\n}', 2, "names 'cpp' twice"),
        ('{\n  "force_backend": null,\n  "force_backend": null\n}', 3, "duplicate key"),
        ('\ufeff{"force_backend": null}', 1, "byte order mark"),
    ],
)
def test_a_bad_file_ends_the_import_with_its_line(processes, text, line, says):
    processes.write(text)
    error = processes.error(IMPORT)
    assert error.startswith(f"tensor_ops.errors.ConfigError: {processes.file}:{line}: ")
    assert says in error
    assert processes.file.read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("FORCE_BACKEND", "cudaa", "did you mean 'cuda'?"),
        ("FORCE_BACKEND", "CUDA", "did you mean 'cuda'?"),
        ("FORCE_BACKEND", "auto", "'auto' is not a backend"),
        ("BACKEND", "pyhton", "did you mean 'python'?"),
        ("BACKEND", "AUTO", "did you mean 'auto'?"),
        ("BACKEND_PRIORITY", "cuda,cppp", "did you mean 'cpp'?"),
        ("BACKEND_PRIORITY", "cpp, cpp", "names 'cpp' twice"),
        ("BACKEND_PRIORITY", "cpp,,python", "''"),
    ],
)
def test_a_bad_variable_ends_the_import_with_its_name(processes, variable, value, says):
    processes.environment(**{variable: value})
    error = processes.error(IMPORT)
    assert error.startswith("tensor_ops.errors.ConfigError: ")
    assert f"TENSOR_OPS_{variable}" in error
    assert says in error


class TestImports:
    """Modules that are imported, and when."""

    def test_the_import_brings_no_backend(self, processes):
        assert processes.output(f"{IMPORT}; {LOADED}") == ""

    @pytest.mark.parametrize("key", ["force_backend", "preferred_backend"])
    def test_nor_does_it_where_python_is_configured(self, key, processes):
        processes.write(**{key: "python"})
        assert processes.output(f"{CALL}; {LOADED}") == ""

    def test_backends_outside_the_priority_are_never_imported(self, processes):
        processes.write(backend_priority=["python"])
        code = f"""
            import numpy, tensor_ops
            x = numpy.ones(1)
            tensor_ops.silu(x)
            tensor_ops.get_available_backends()
            tensor_ops.get_backend_info()
            tensor_ops.explain("silu", x)
            import contextlib, io
            with contextlib.redirect_stdout(io.StringIO()):
                tensor_ops.list_backends(verbose=True)
            with tensor_ops.use_backend("python"):
                tensor_ops.silu(x)
            {LOADED}
        """
        assert processes.output(dedent(code)) == ""

    @pytest.mark.parametrize(
        "content", [{}, {"preferred_backend": "auto", "backend_priority": ["cpp", "python"]}]
    )
    def test_what_only_some_need_is_imported_then(self, processes, content):
        """Modules that cost milliseconds and serve errors, writing or plug-ins."""
        processes.write(**content)
        avoidable = (
            *("importlib.metadata", "email", "platformdirs", "difflib", "tempfile", "argparse"),
            *("asyncio", "logging", "subprocess", "concurrent.futures", "unittest", "pytest"),
            *("torch", "cupy", "jax", "onnxruntime", "scipy", "matplotlib"),
        )
        code = f"import numpy, sys; before = set(sys.modules); {IMPORT}; "
        code += f"print(*sorted((set(sys.modules) - before) & set({avoidable})))"
        assert processes.output(code) == ""

    def test_the_cost_for_information(self, processes, capsys):
        times = {}
        for code in ("import numpy", IMPORT):
            clock = "from time import perf_counter as now; start = now(); "
            output = [processes.output(f"{clock}{code}; print(now() - start)") for _ in range(3)]
            times[code] = min(map(float, output))
        with capsys.disabled():
            print(f"\nimport tensor_ops: {1e3 * (times[IMPORT] - times['import numpy']):.0f} ms")


def test_threads_that_make_the_first_call_together(processes):
    code = """
        import sys, threading, numpy, tensor_ops
        sys.setswitchinterval(1e-6)
        start, results = threading.Barrier(8), []
        def work():
            start.wait()
            results.append(tensor_ops.silu(numpy.ones(1)).item())
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(len(results), len(set(results)))
    """
    assert processes.output(dedent(code)) == "8 1"


def test_an_unavailable_error_survives_pickling(processes):
    code = """
        import pickle, tensor_ops
        try:
            tensor_ops.set_default_backend("nki")
        except tensor_ops.BackendUnavailableError as error:
            copy = pickle.loads(pickle.dumps(error))
            print(copy.name, str(copy) == str(error))
    """
    assert processes.output(dedent(code)) == "nki True"
