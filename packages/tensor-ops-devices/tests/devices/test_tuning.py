"""Settings that configure_torch_backend makes and takes back; conftest.py pretends the GPUs."""

import pytest
import torch

from tensor_ops_devices import BackendError, Tuning, configure_torch_backend

BACKENDS = torch.backends
NEWER = [BACKENDS.cuda.matmul, BACKENDS.mkldnn.matmul, BACKENDS.cudnn.conv, BACKENDS.cudnn.rnn]


def read(function):
    try:
        return function()
    except RuntimeError:
        return "mixed"


def state():
    return {
        "benchmark": BACKENDS.cudnn.benchmark,
        "precision": read(torch.get_float32_matmul_precision),
        "matmul": read(lambda: BACKENDS.cuda.matmul.allow_tf32),
        "cudnn": read(lambda: BACKENDS.cudnn.allow_tf32),
        "newer": [part.fp32_precision for part in NEWER],
    }


@pytest.fixture(autouse=True)
def as_pytorch_starts():
    before = [part.fp32_precision for part in NEWER]
    yield
    BACKENDS.fp32_precision = "none"
    BACKENDS.cudnn.benchmark = False
    BACKENDS.cudnn.allow_tf32 = True
    torch.set_float32_matmul_precision("highest")
    for part, precision in zip(NEWER, before, strict=True):
        part.fp32_precision = precision


def test_cuda(pretend):
    pretend.gpu()
    tuning = configure_torch_backend("cuda", torch.device("cuda"), verbose=False)
    assert BACKENDS.cudnn.benchmark
    assert BACKENDS.cuda.matmul.allow_tf32
    assert BACKENDS.cudnn.allow_tf32
    assert torch.get_float32_matmul_precision() == "high"
    assert tuning.changes["torch.backends.cudnn.benchmark"] == (False, True)
    assert tuning.changes["torch.get_float32_matmul_precision()"] == ("highest", "high")
    assert tuning.changes["torch.backends.cuda.matmul.allow_tf32"] == (False, True)
    assert "torch.backends.cudnn.allow_tf32" not in tuning.changes  # it was on
    assert (tuning.backend, tuning.device) == ("cuda", torch.device("cuda"))


def test_rocm_keeps_tf32_off(pretend, monkeypatch):
    pretend.gpu(hip="6.4")
    monkeypatch.delenv("HIPBLASLT_ALLOW_TF32", raising=False)
    BACKENDS.fp32_precision = "tf32"
    tuning = configure_torch_backend("rocm", "cuda", verbose=False)
    assert not BACKENDS.cudnn.allow_tf32
    assert torch.get_float32_matmul_precision() == "high"
    assert not BACKENDS.cudnn.benchmark
    tuning.restore()
    assert [part.fp32_precision for part in NEWER] == ["tf32"] * 4


def test_rocm_keeps_tf32_off_where_high_would_bring_it(pretend, monkeypatch):
    pretend.gpu(hip="6.4")
    monkeypatch.setenv("HIPBLASLT_ALLOW_TF32", "1")
    torch.set_float32_matmul_precision("high")
    configure_torch_backend("auto", "cuda", verbose=False)
    assert torch.get_float32_matmul_precision() == "highest"
    assert not BACKENDS.cuda.matmul.allow_tf32


def test_mps(pretend):
    pretend.apple()
    tuning = configure_torch_backend("auto", "mps", verbose=False)
    assert torch.get_float32_matmul_precision() == "high"
    assert "torch.backends.cudnn.benchmark" not in tuning.changes


def test_cpu_changes_nothing():
    before = state()
    tuning = configure_torch_backend("auto", torch.device("cpu"), verbose=False)
    assert (tuning.changes, state()) == ({}, before)
    assert repr(tuning) == "<Tuning of cpu for 'auto': nothing changed>"


def older(name):
    return lambda: torch.set_float32_matmul_precision(name)


def newer(part, precision):
    return lambda: setattr(part, "fp32_precision", precision)


@pytest.mark.parametrize(
    "prepare",
    [
        lambda: None,
        older("medium"),
        lambda: setattr(BACKENDS.cuda.matmul, "allow_tf32", True),
        lambda: setattr(BACKENDS.cudnn, "allow_tf32", False),
        lambda: setattr(BACKENDS.cudnn, "benchmark", True),
        newer(BACKENDS.cuda.matmul, "tf32"),
        newer(BACKENDS.cudnn.conv, "ieee"),
        newer(BACKENDS.mkldnn.matmul, "bf16"),
        newer(BACKENDS, "tf32"),
        newer(BACKENDS, "ieee"),
    ],
    ids=["fresh", "medium", "tf32", "no tf32", "benchmark", *map(str, range(5))],
)
@pytest.mark.parametrize("build", [{"cuda": "13.0"}, {"hip": "6.4"}], ids=["cuda", "rocm"])
def test_everything_is_taken_back_whatever_it_was(pretend, prepare, build):
    """Also where what the user set through the newer interface cannot be read from the older."""
    pretend.gpu(**build)
    prepare()
    before = state()
    with configure_torch_backend("auto", "cuda", verbose=False) as tuning:
        assert isinstance(tuning, Tuning)
        assert torch.get_float32_matmul_precision() == "high"
    assert state() == before
    assert tuning.changes == {}


def test_it_is_taken_back_after_an_error_and_once_only(pretend):
    pretend.gpu()
    before = state()
    with (
        pytest.raises(ZeroDivisionError),
        configure_torch_backend("cuda", "cuda", verbose=False) as tuning,
    ):
        raise ZeroDivisionError
    assert state() == before
    torch.set_float32_matmul_precision("medium")
    tuning.restore()
    assert torch.get_float32_matmul_precision() == "medium"


def shown(capsys):
    return dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())


def test_diagnostics_of_the_cpu(capsys):
    configure_torch_backend("auto", "cpu")
    rows = shown(capsys)
    assert rows["backend"] == "auto -> cpu"
    assert rows["PyTorch"].startswith(f"{torch.__version__}, built for ")
    assert rows["threads"].startswith(f"{torch.get_num_threads()} of ")
    assert "MiB" in rows["memory"]
    assert rows["backends.cudnn.benchmark"] == "False"


def test_diagnostics_of_a_gpu(pretend, capsys):
    pretend.gpu()
    configure_torch_backend("cuda", "cuda")
    rows = shown(capsys)
    assert rows["PyTorch"].startswith(f"{torch.__version__}, built for CUDA 13.0")
    assert rows["device"] == "A pretended GPU, compute capability 9.0"
    assert rows["memory"].startswith("3 MiB of 8 MiB free; PyTorch has 1 MiB in tensors and 2 MiB")
    assert rows["backends.cudnn.benchmark"] == "True (was False)"
    assert rows["get_float32_matmul_precision()"] == "high (was highest)"
    assert "cuDNN" in rows


def test_diagnostics_of_rocm_and_apple(pretend, capsys):
    pretend.gpu(hip="6.4")
    configure_torch_backend("rocm", "cuda")
    assert "MIOpen" in shown(capsys)
    pretend.apple()
    configure_torch_backend("mps", "mps")
    assert shown(capsys)["device"].startswith("Apple GPU")


def test_quiet_on_request(capsys):
    configure_torch_backend("cpu", "cpu", verbose=False)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("backend", "device", "says"),
    [
        ("cpu", "cuda", "'cuda' is not of backend 'cpu'; pass resolve_torch_device('cpu')"),
        ("cuda", "cpu", "'cpu' is not of backend 'cuda'"),
        ("auto", "cuda:1", "PyTorch finds 1 such devices"),
        ("auto", "mps", "is unavailable: torch.backends.mps.is_available() is False"),
        ("rocm", "cuda", "is built for CUDA 13.0; ask for 'cuda'"),
        ("auto", "meta", "has none of the types cuda, mps, cpu"),
        ("auto", "gpu", "'gpu' is no device of PyTorch"),
        ("auto", None, "None is no device of PyTorch"),
        ("cud", "cuda", "did you mean 'cuda'?"),
    ],
)
def test_what_does_not_fit_changes_nothing(pretend, backend, device, says):
    pretend.gpu()
    pretend.devices(cuda=1)
    before = state()
    with pytest.raises(BackendError) as caught:
        configure_torch_backend(backend, device)
    assert says in str(caught.value)
    assert state() == before
