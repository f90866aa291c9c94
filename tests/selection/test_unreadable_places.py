"""Places of the configuration that cannot be looked at, and relative ones."""

import os
import sys
from pathlib import Path
from textwrap import dedent

import pytest

IMPORT = "import tensor_ops"
CALL = "import numpy, tensor_ops; tensor_ops.silu(numpy.ones(1))"
BACKEND = "import tensor_ops; print(tensor_ops.get_backend())"
OURS = ("tensor_ops_cpp", "tensor_ops_opencl", "tensor_ops_cuda", "tensor_ops_torch")
LOADED = f"import sys; print(*sorted(set(sys.modules) & set({OURS})))"


class TestPlacesThatCannotBeLookedAt:
    """In processes of their own, without the rights that let root look anywhere."""

    @pytest.fixture
    def places(self, processes):
        """Return (path, start): the file's path and the code that makes it looked for."""
        home, prefix = processes.directory / "home", processes.directory / "prefix"
        processes.environ |= {"XDG_CONFIG_HOME": str(home), "HOME": str(home)}
        start = f"import sys; sys.prefix = {str(prefix)!r}; "
        folders = {
            "variable": processes.directory / "named",
            "prefix": prefix / "etc" / "tensor-ops",
            "user": home / "tensor-ops",
        }
        for folder in folders.values():
            folder.mkdir(parents=True)
        return {name: (folder / "backend.json", start) for name, folder in folders.items()}

    @pytest.fixture
    def run(self, processes, places):
        def run(place, code=BACKEND):
            path, start = places[place]
            processes.environment(CONFIG=str(path) if place == "variable" else None)
            return processes.run(start + code, preexec_fn=_without_rights_of_root)

        return run

    @pytest.mark.skipif(sys.platform != "linux", reason="capabilities are Linux's")
    @pytest.mark.parametrize("place", ["variable", "prefix", "user"])
    def test_an_unsearchable_folder(self, places, run, place):
        path, _ = places[place]
        path.write_text('{"force_backend": "nki"}')
        path.parent.chmod(0)
        try:
            done = run(place)
        finally:
            path.parent.chmod(0o755)
        if place == "user":
            assert (done.returncode, done.stdout.strip() != "") == (0, True), done.stderr
            assert done.stderr.count("ConfigWarning: ") == 1
            assert done.stderr.startswith("<string>:1: ConfigWarning: ")  # the user's line
            assert f"{path}: cannot be looked at: Permission denied" in done.stderr
        else:
            assert done.returncode == 1
            assert "ConfigError: " in done.stderr
            assert f"{path}: cannot be looked at: Permission denied" in done.stderr

    @pytest.mark.parametrize("place", ["variable", "prefix", "user"])
    @pytest.mark.parametrize(
        "make", [lambda path: path.symlink_to("/nowhere"), os.mkfifo, Path.mkdir]
    )
    def test_a_link_to_nowhere_a_pipe_and_a_folder(self, places, run, place, make):
        path, _ = places[place]
        make(path)
        show = "sys.argv = ['tensor-ops', 'configure_backend', '--show']; "
        show += "from tensor_ops.__main__ import main; sys.exit(main())"
        for code, head in (
            (IMPORT, "tensor_ops.errors.ConfigError: "),
            (show, "tensor-ops: error"),
        ):
            done = run(place, code)
            assert done.returncode == 1, (done.stdout, done.stderr)
            last = done.stderr.strip().splitlines()[-1]
            assert last.startswith(head)
            assert str(path) in last

    def test_a_relative_variable_is_resolved_once(self, processes):
        processes.write(force_backend="python")
        processes.environment(CONFIG="backend.json")
        code = f"""
            import os, tensor_ops
            os.mkdir("elsewhere")
            os.chdir("elsewhere")
            tensor_ops.reload_config()
            print(tensor_ops.get_backend_info()["config_file"] == {str(processes.file)!r})
        """
        assert processes.output(dedent(code)) == "True"

    @pytest.mark.parametrize("start", ["", "{folder}/"])
    def test_a_variable_that_goes_up_from_a_link_is_read_as_the_system_does(self, processes, start):
        folder = processes.directory
        (folder / "releases" / "1").mkdir(parents=True)
        (folder / "current").symlink_to(folder / "releases" / "1")
        (folder / "releases" / "backend.json").write_text('{"force_backend": "python"}')
        processes.write(force_backend="nki")  # where the link is
        processes.environment(CONFIG=start.format(folder=folder) + "current/../backend.json")
        assert processes.output(BACKEND) == "python"


def _without_rights_of_root():
    import ctypes

    drop_from_bounding_set, override, read_and_search = 24, 1, 2
    libc = ctypes.CDLL(None)
    for capability in (override, read_and_search):
        libc.prctl(drop_from_bounding_set, capability, 0, 0, 0)
