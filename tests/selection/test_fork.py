"""A forked child: its backends are asked again, and its selection is the parent's."""

import json
import os
from textwrap import dedent

import pytest

IMPORT = "import tensor_ops"
CALL = "import numpy, tensor_ops; tensor_ops.silu(numpy.ones(1))"
BACKEND = "import tensor_ops; print(tensor_ops.get_backend())"
OURS = ("tensor_ops_cpp", "tensor_ops_opencl", "tensor_ops_cuda", "tensor_ops_torch")
LOADED = f"import sys; print(*sorted(set(sys.modules) & set({OURS})))"


LOST_BY_FORK = """
API_VERSION = 1
used = forked = False
def note_fork():
    global forked
    forked = used
import os
os.register_at_fork(after_in_child=note_fork)
def probe():
    global used
    used = True
    reason = "this process was forked after the device was used" if forked else None
    return {"available": not forked, "reason": reason, "kind": "gpu"}
def info():
    return {}
def supports(op, dtype, device):
    return None
def silu(*args, out=None):
    if forked:
        raise RuntimeError("called all the same")
    return "lost"
rms_norm = silu
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork()")
class TestForkAfterTheDeviceWasUsed:
    """The child of a process that used a device which does not survive it."""

    @pytest.fixture
    def ask(self, processes):
        """Return what get_backend, explain and two ops say in a child, and what it warns of."""
        (processes.directory / "lost.py").write_text(LOST_BY_FORK)
        metadata = processes.directory / "lost-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: lost\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text("[tensor_ops.backends]\nlost = lost\n")
        code = """
            import json, os, sys, warnings, numpy as np, tensor_ops
            x = np.ones(3, "f")
            def attempt(function):
                try:
                    return str(function())
                except tensor_ops.BackendError as error:
                    return f"{type(error).__name__}: {error}"
            def ask():
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    said = [
                        attempt(tensor_ops.get_backend),
                        attempt(lambda: tensor_ops.explain("silu", x).backend),
                        attempt(lambda: tensor_ops.silu(x)),
                        attempt(lambda: tensor_ops.rms_norm(x[None], x)),
                    ]
                return said, [str(each.message) for each in caught]
            SETTING
            before = ask()
            assert before == (["lost", "lost", "lost", "lost"], []), before
            sys.stdout.flush()
            child = os.fork()
            if child == 0:
                print(json.dumps(ask()), flush=True)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            assert ask() == before
        """

        def ask(setting="pass"):
            output = processes.output(
                dedent(code).replace("SETTING", setting), "-Wignore::DeprecationWarning"
            )
            return json.loads(output)

        return ask

    SAID = "this process was forked after the device was used"

    def test_auto_falls_back_with_one_warning(self, processes, ask):
        processes.write(backend_priority=["lost", "python"])
        said, warned = ask()
        assert said[:2] == ["python", "python"]
        assert said[2].startswith("[0.73")
        assert said[3].startswith("[[0.99")
        assert len(warned) == 1
        assert self.SAID in warned[0]
        assert "Running on 'python' instead" in warned[0]

    def test_a_preference_falls_back_with_one_warning(self, processes, ask):
        processes.write(preferred_backend="lost", backend_priority=["python"])
        said, warned = ask()
        assert said[:2] == ["python", "python"]
        assert len(warned) == 1
        assert self.SAID in warned[0]

    @pytest.mark.parametrize("level", ["file", "environment", "context"])
    def test_the_strict_levels_raise(self, processes, ask, level):
        setting = "pass"
        if level == "file":
            processes.write(force_backend="lost")
        elif level == "environment":
            processes.environment(FORCE_BACKEND="lost")
        else:
            setting = "tensor_ops.use_backend('lost').__enter__()"
        said, warned = ask(setting)
        assert warned == []
        assert said[1] == "None"
        for each in (said[0], said[2], said[3]):
            assert each.startswith("BackendUnavailableError: backend 'lost'")
            assert self.SAID in each


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork()")
def test_a_forked_child_goes_on_with_what_was_selected(processes):
    processes.write(backend_priority=["python"])
    code = """
        import os, numpy, tensor_ops
        tensor_ops.silu(numpy.ones(1))
        tensor_ops.set_default_backend("python")
        with tensor_ops.use_backend("python"):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    tensor_ops.reload_config()
                    tensor_ops.silu(numpy.ones(1, "f"))
                    info = tensor_ops.get_backend_info()
                    status = 0 if info["decided_by"] == "use_backend()" else 2
                finally:
                    os._exit(status)
            print(os.waitpid(child, 0)[1])
    """
    assert processes.output(dedent(code), "-Wignore::DeprecationWarning") == "0"
