"""Sessions of ONNX Runtime whose provider fails, or that run nodes on the CPU: nothing is silent.

A provider that fails is real here where it can be: ONNX Runtime drops what it was not built with as
it drops what it cannot bring up, and puts all nodes on the CPU beside the provider of Azure, which
runs none of them.
"""

import pytest
from onnx_models import AZURE, CPU, CUDA, model_of, node

from tensor_ops import BackendFallbackWarning, BackendUnavailableError
from tensor_ops_devices import BackendError, create_session

onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.usefixtures("nothing_configured")


class Claimed:
    """Makes ONNX Runtime claim providers that it does not have, or cannot bring up."""

    def __init__(self, monkeypatch):
        self.patch = monkeypatch

    def __call__(self, *providers):
        here = onnxruntime.get_available_providers()
        self.patch.setattr(onnxruntime, "get_available_providers", lambda: [*providers, *here])


@pytest.fixture
def claim(monkeypatch):
    return Claimed(monkeypatch)


class TestNoSilentCPU:
    @pytest.mark.filterwarnings("ignore:Specified provider")
    def test_a_named_provider_that_onnx_runtime_drops(self, block, claim):
        claim(CUDA)
        with pytest.raises(BackendUnavailableError) as caught:
            create_session(block, "cuda")
        assert f"ONNX Runtime dropped it and would run on {CPU}" in str(caught.value)

    @pytest.mark.filterwarnings("ignore:Specified provider")
    def test_one_that_was_found_and_is_dropped(self, block, claim, x):
        claim(CUDA)
        with pytest.warns(BackendFallbackWarning, match="'cuda' cannot run: .*dropped it"):
            session = create_session(block)
        assert session.explanation.providers == session.explanation.running == (CPU,)
        assert "cuda: ONNX Runtime dropped it" in str(session.explanation)
        assert session.run(None, {"x": x})[0].shape == x.shape

    def refuse(self, monkeypatch, *providers):
        """Let a session with one of these providers fail as one does whose library is missing."""
        original = onnxruntime.InferenceSession

        def refusing(model, options, **given):
            if given["providers"][0] in providers:
                raise RuntimeError("libcudnn.so.9:\ncannot open")
            return original(model, options, **given)

        monkeypatch.setattr(onnxruntime, "InferenceSession", refusing)

    def test_a_provider_that_raises(self, block, claim, monkeypatch):
        claim(CUDA)
        self.refuse(monkeypatch, CUDA)
        says = "could not make the session: RuntimeError: libcudnn.so.9: cannot open"
        with pytest.raises(BackendUnavailableError, match=says) as caught:
            create_session(block, "cuda")
        assert isinstance(caught.value.__cause__, RuntimeError)
        with pytest.warns(BackendFallbackWarning, match=says):
            assert create_session(block).get_providers() == [CPU]

    @pytest.mark.filterwarnings("ignore:Specified provider")
    def test_every_provider_of_a_backend_is_tried(self, block, claim, monkeypatch):
        claim("ROCMExecutionProvider", "MIGraphXExecutionProvider")
        self.refuse(monkeypatch, "ROCMExecutionProvider")
        with pytest.raises(BackendUnavailableError) as caught:
            create_session(block, "rocm")
        assert "libcudnn.so.9: cannot open; ONNX Runtime dropped it" in str(caught.value)

    def test_a_gpu_for_which_onnx_runtime_has_no_provider(self, block, pretend):
        pretend.gpu()
        with pytest.warns(BackendFallbackWarning, match="'cuda' cannot run: .*onnxruntime-gpu"):
            create_session(block)
        pretend.gpu(hip="6.4")
        with pytest.warns(BackendFallbackWarning, match="'rocm' cannot run: "):
            create_session(block)

    def test_the_cpu_that_was_asked_for_is_not_worth_a_word(self, block, pretend):
        pretend.gpu()
        create_session(block, "cpu")


class TestNodes:
    @pytest.fixture
    def beside_azure(self, monkeypatch):
        """Have a backend whose provider is there and runs no node of these models."""
        if AZURE not in onnxruntime.get_available_providers():
            pytest.skip(f"this build of ONNX Runtime has no {AZURE}")
        from tensor_ops_devices.devices import providers

        monkeypatch.setitem(providers.PROVIDERS, "cuda", (AZURE,))

    def test_are_counted(self, block):
        explanation = create_session(block).explanation
        assert explanation.nodes == {CPU: {"Gelu": 1, "LayerNormalization": 1, "Softmax": 1}}
        assert str(explanation).endswith(
            f"in the session: {CPU}\n  nodes of {CPU}: Gelu, LayerNormalization, Softmax"
        )

    def test_more_than_one_of_a_kind(self):
        model = model_of(node("Gelu", "x", "h"), node("Gelu", "h"))
        assert str(create_session(model).explanation).endswith("Gelu x2")

    def test_on_the_cpu_beside_another_provider_are_told(self, block, beside_azure):
        says = f"3 of 3 nodes run on the CPU, not on {AZURE}: Gelu, LayerNormalization, Softmax"
        with pytest.warns(BackendFallbackWarning, match=says) as told:
            session = create_session(block, "cuda")
        assert told[0].filename == __file__
        assert session.explanation.running == (AZURE, CPU)
        assert list(session.explanation.nodes) == [CPU]

    def test_may_be_an_error(self, block, beside_azure):
        with pytest.raises(BackendError, match="3 of 3 nodes run on the CPU"):
            create_session(block, "cuda", cpu_nodes="raise")

    def test_may_be_accepted(self, block, beside_azure):
        assert create_session(block, "cuda", cpu_nodes="allow").get_providers() == [AZURE, CPU]
