"""Sessions of ONNX Runtime: where they run, what is said, and that their numbers are ours."""

import json
import sys

import numpy as np
import pytest
from onnx_models import AZURE, BIAS, CPU, CUDA, WEIGHT, model_of, node

import tensor_ops
from tensor_ops import BackendFallbackWarning, BackendUnavailableError, ConfigError
from tensor_ops_devices import BackendError, create_session, explain_session

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.usefixtures("nothing_configured")


class TestNumbers:
    """What ONNX Runtime computes on the CPU is what our ops compute, to its own precision."""

    @pytest.mark.parametrize(
        ("nodes", "expected", "opset"),
        [
            (
                [node("LayerNormalization", "x weight bias", epsilon=1e-5)],
                lambda x: tensor_ops.layer_norm(x, WEIGHT, BIAS, 1e-5),
                20,
            ),
            (
                [node("Gelu", "x", approximate="tanh")],
                lambda x: tensor_ops.gelu(x, "tanh"),
                20,
            ),
            ([node("Gelu", "x")], lambda x: tensor_ops.gelu(x, "none"), 20),
            ([node("Softmax", "x", axis=-1)], tensor_ops.softmax, 20),
            (
                [node("RMSNormalization", "x weight", epsilon=1e-6)],
                lambda x: tensor_ops.rms_norm(x, WEIGHT, 1e-6),
                23,
            ),
            (
                [node("Sigmoid", "x", "s"), node("Mul", "x s")],
                tensor_ops.silu,
                20,
            ),
        ],
        ids=["layer_norm", "gelu", "gelu:none", "softmax", "rms_norm", "silu"],
    )
    def test_one_op(self, nodes, expected, opset, x):
        session = create_session(model_of(*nodes, opset=opset), "cpu")
        (result,) = session.run(None, {"x": x})
        np.testing.assert_allclose(result, expected(x), rtol=2e-5, atol=2e-6)

    def test_three_in_a_row(self, block, x):
        (result,) = create_session(block).run(None, {"x": x})
        expected = tensor_ops.softmax(tensor_ops.gelu(tensor_ops.layer_norm(x, WEIGHT, BIAS)))
        np.testing.assert_allclose(result, expected, rtol=2e-5, atol=1e-7)

    def test_another_model_gives_other_numbers(self, x):
        """The tolerance above tells the two approximations of GELU apart."""
        (tanh,) = create_session(model_of(node("Gelu", "x", approximate="tanh"))).run(
            None, {"x": x}
        )
        with pytest.raises(AssertionError):
            np.testing.assert_allclose(tanh, tensor_ops.gelu(x, "none"), rtol=2e-5, atol=2e-6)


class TestModels:
    def test_paths_bytes_and_protos(self, block, x, tmp_path):
        path = tmp_path / "block.onnx"
        onnx.save(block, path)
        serialized = block.SerializeToString()
        models = [path, str(path), serialized, bytearray(serialized), block]
        results = [create_session(model).run(None, {"x": x})[0] for model in models]
        for result in results[1:]:
            np.testing.assert_allclose(result, results[0], rtol=1e-6)

    def test_no_such_file(self, tmp_path):
        path = tmp_path / "lost.onnx"
        with pytest.raises(FileNotFoundError, match=r"there is no model file '.*lost\.onnx'"):
            create_session(path)

    @pytest.mark.parametrize("model", [None, 3, ["x"], object], ids=repr)
    def test_no_model(self, model):
        with pytest.raises((TypeError, ValueError), match="onnx"):
            create_session(model)

    def test_what_onnx_runtime_says_of_a_bad_model_is_left_to_it(self):
        with pytest.raises(Exception, match="protobuf parsing failed"):
            create_session(b"junk")

    def test_options_are_passed_on(self, block):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = create_session(block, sess_options=options, provider_options={CPU: {}})
        assert session.get_session_options().intra_op_num_threads == 1
        arena = {AZURE: {}, CPU: {"use_arena": "1"}}
        assert create_session(block, provider_options=arena).get_providers() == [CPU]

    def test_options_of_what_is_no_provider(self, block):
        with pytest.raises(ValueError, match=rf"'{CUDA}s', .* did you mean '{CUDA}'\?"):
            create_session(block, provider_options={f"{CUDA}s": {}})
        with pytest.raises(TypeError, match=r"provider_options\['CPU.*must be a mapping, got \[\]"):
            create_session(block, provider_options={CPU: []})

    def test_options_reach_their_provider(self, block, monkeypatch):
        """Seen at the door of ONNX Runtime, whose provider for CUDA is not here."""
        seen = {}

        class Session:
            def __init__(self, model, options, **given):
                seen.update(given)

            def get_providers(self):
                return seen["providers"]

        monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
        monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [CUDA, CPU])
        session = create_session(block, "cuda", provider_options={CUDA: {"device_id": 1}})
        assert seen["providers"] == [CUDA, CPU]
        assert seen["provider_options"] == [{"device_id": 1}, {}]
        # An older ONNX Runtime does not tell which provider a node has.
        assert (session.explanation.running, session.explanation.nodes) == ((CUDA, CPU), None)

    def test_a_wrong_choice_for_nodes_on_the_cpu(self, block):
        with pytest.raises(ValueError, match="cpu_nodes is 'no', expected one of 'allow', 'warn'"):
            create_session(block, cpu_nodes="no")

    def test_without_onnx_runtime(self, block, monkeypatch):
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
        for call in (lambda: create_session(block), explain_session):
            with pytest.raises(BackendError, match=r"pip install onnxruntime"):
                call()


class TestSelection:
    """Who decides where it runs; as for an op."""

    @pytest.mark.parametrize("backend", ["cpu", "cpp", "python", "torch"])
    def test_named(self, block, backend):
        explanation = create_session(block, backend).explanation
        assert explanation.providers == explanation.running == (CPU,)
        assert (explanation.mode, explanation.decided_by) == (
            "named",
            "backend= of create_session()",
        )

    @pytest.mark.parametrize(
        ("backend", "says"),
        [
            (
                "cuda",
                f"ONNX Runtime was built without {CUDA}, it has .*pip install onnxruntime-gpu",
            ),
            ("cudnn", f"built without {CUDA}"),
            ("rocm", "pip install onnxruntime-migraphx"),
            ("mps", "built without CoreMLExecutionProvider"),
            ("mkldnn", "a build of ONNX Runtime with --use_dnnl"),
            ("opencl", "ONNX Runtime has no execution provider for opencl"),
            ("tpu", "no execution provider for tpu"),
        ],
    )
    def test_named_and_not_there(self, block, backend, says):
        with pytest.raises(BackendUnavailableError, match=f"backend '{backend}' .named .*{says}"):
            create_session(block, backend)

    def test_unknown(self, block):
        with pytest.raises(ConfigError, match=r"unknown backend 'cudaa'; did you mean 'cuda'\?"):
            create_session(block, "cudaa")

    def test_in_a_context(self, block):
        with tensor_ops.use_backend("python"):
            explanation = create_session(block).explanation
        assert (explanation.backend, explanation.decided_by) == ("python", "use_backend()")

    def test_preferred_by_the_environment_falls_back_with_a_warning(self, block, monkeypatch):
        monkeypatch.setenv("TENSOR_OPS_BACKEND", "cuda")
        tensor_ops.reload_config()
        with pytest.warns(
            BackendFallbackWarning, match="'cuda' cannot run: .* runs on CPU"
        ) as told:
            explanation = create_session(block).explanation
        assert told[0].filename == __file__
        assert (explanation.backend, explanation.mode) == ("cpp", "preferred")
        assert [step.backend for step in explanation.steps] == ["cuda", "opencl", "cpp"]
        monkeypatch.delenv("TENSOR_OPS_BACKEND")
        tensor_ops.reload_config()

    def test_forced_by_the_file(self, tmp_path, monkeypatch):
        file = tmp_path / "backend.json"
        file.write_text(json.dumps({"force_backend": "python"}))
        monkeypatch.setenv("TENSOR_OPS_CONFIG", str(file))
        tensor_ops.reload_config()
        explanation = explain_session(available=[CUDA, CPU])
        assert (explanation.backend, explanation.mode) == ("python", "force")
        assert explanation.providers == (CPU,)
        assert explanation.decided_by.endswith("backend.json")
        monkeypatch.delenv("TENSOR_OPS_CONFIG")
        tensor_ops.reload_config()

    def test_a_priority_of_the_users_own(self, monkeypatch):
        monkeypatch.setenv("TENSOR_OPS_BACKEND_PRIORITY", "opencl,cpp,cuda")
        tensor_ops.reload_config()
        explanation = explain_session(available=[CUDA, CPU])
        assert (explanation.backend, explanation.providers) == ("cpp", (CPU,))
        assert explanation.steps[0].reason == "ONNX Runtime has no execution provider for opencl"
        monkeypatch.delenv("TENSOR_OPS_BACKEND_PRIORITY")
        tensor_ops.reload_config()

    @pytest.mark.parametrize(
        ("available", "backend", "providers"),
        [
            ([CPU, CUDA, "MIGraphXExecutionProvider"], "cuda", (CUDA, CPU)),
            ([CPU, "MIGraphXExecutionProvider"], "rocm", ("MIGraphXExecutionProvider", CPU)),
            ([CPU, "CoreMLExecutionProvider"], "mps", ("CoreMLExecutionProvider", CPU)),
            ([CPU], "cpu", (CPU,)),
            ([], None, ()),
        ],
    )
    def test_auto_where_nobody_has_set_anything(self, available, backend, providers):
        explanation = explain_session(available=available)
        assert (explanation.backend, explanation.providers) == (backend, providers)

    def test_as_text_and_as_data(self):
        explanation = explain_session("auto", [AZURE, CPU])
        cuda, rocm, mps, cpu = explanation.steps
        assert str(explanation) == (
            "ONNX Runtime: cpu by CPUExecutionProvider\n"
            "  decided by the built-in default (auto)\n"
            f"  cuda: {cuda.reason}\n  rocm: {rocm.reason}\n  mps: {mps.reason}\n  cpu: chosen\n"
            "  provider order: CPUExecutionProvider"
        )
        assert cpu.reason is None
        assert json.loads(json.dumps(explanation.as_dict())) == explanation.as_dict()

    def test_a_string_for_providers(self):
        with pytest.raises(TypeError, match="several names"):
            explain_session("cpu", CPU)
