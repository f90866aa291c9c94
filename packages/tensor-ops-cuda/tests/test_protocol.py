"""Arrays that speak DLPack's Python protocol, as CuPy's, JAX's and those of older torch do."""

import sys

import numpy as np
import pytest
from emulated import new_library

from tensor_ops_cuda import rms_norm, silu


@pytest.fixture
def use(runtime, monkeypatch):
    """A function that puts a made-up library among the imported ones."""

    def make(name, **more):
        library = new_library(runtime, name, **more)
        monkeypatch.setitem(sys.modules, name, library)
        return library

    return make


def test_tensors_that_require_grad_where_none_is_recorded(use, runtime, rng):
    """PyTorch's protocol exports what they are detached to."""
    library = use("madeup")
    library.is_grad_enabled = lambda: False

    class Tensor(library.ndarray):
        requires_grad = True

        def detach(self):
            return library.ndarray(self.runtime, self.address, self.shape, self.strides, self.dtype)

        def __dlpack__(self, **more):
            raise BufferError("cannot export tensors that require gradient")

    Tensor.__module__ = "madeup"
    host = rng.normal(size=(3, 50)).astype(np.float32)
    x = Tensor.of(runtime, host)
    np.testing.assert_array_equal(silu(x).numpy(), silu(host))
    assert silu(x, out=x) is x
    np.testing.assert_array_equal(x.numpy(), silu(host))
    library.is_grad_enabled = lambda: True
    with pytest.raises(ValueError, match="silu: x requires grad"):
        silu(x)


@pytest.mark.parametrize("versioned", [True, False])
def test_round_trip(use, runtime, rng, versioned):
    library = use("madeup", versioned=versioned)
    host = rng.normal(size=(3, 50))[:, ::2].astype(np.float16)
    y = silu(library.ndarray.of(runtime, host))
    assert type(y) is library.ndarray
    np.testing.assert_array_equal(y.numpy(), silu(host))
    assert library.given == ["DeviceArray"]


def test_cupys_current_stream(use, runtime):
    stream = runtime.stream()
    library = use("cupy", stream=stream)
    x = library.ndarray.of(runtime, np.full(30, np.nan, np.float32))
    values = np.linspace(-3, 3, 30, dtype=np.float32)
    runtime.upload_later(x.address, runtime.pinned(values), values.nbytes, stream)
    y = silu(x)
    assert library.asked == [(stream, {"max_version": (1, 0)})]
    assert not runtime.is_idle(stream)
    np.testing.assert_array_equal(y.numpy(), silu(values))


def test_unknown_library_lends_until_the_work_is_done(use, runtime):
    """Its memory is not given back while a kernel may still read it."""
    library = use("madeup")
    x = library.ndarray.of(runtime, np.ones(30, np.float32))
    silu(x)
    assert len(library.leases.lent) == 1
    runtime.cudaDeviceSynchronize()
    silu(x)
    runtime.cudaDeviceSynchronize()
    silu(x)
    assert len(library.leases.lent) <= 1


def test_not_too_many_are_lent(use, runtime):
    """The oldest are waited for, where nothing else does."""
    library = use("madeup")
    x = library.ndarray.of(runtime, np.ones(30, np.float32))
    for _ in range(200):
        silu(x)
    assert len(library.leases.lent) <= 65


def test_weight_is_asked_for_the_calls_stream(use, runtime, rng):
    stream = runtime.stream()
    first, second = use("cupy", stream=stream), use("madeup")
    x, weight = rng.normal(size=(3, 32)).astype("f4"), rng.normal(size=32).astype("f4")
    y = rms_norm(first.ndarray.of(runtime, x), second.ndarray.of(runtime, weight))
    assert second.asked[0][0] == stream
    assert type(y) is first.ndarray
    np.testing.assert_array_equal(y.numpy(), rms_norm(x, weight))


def test_read_only_out(use, runtime):
    library = use("madeup")
    x = library.ndarray.of(runtime, np.ones(4, np.float32))
    out = library.ndarray.of(runtime, np.ones(4, np.float32), read_only=True)
    with pytest.raises(ValueError, match="silu: out is read-only"):
        silu(x, out=out)


def test_export_that_is_refused(use, runtime):
    library = use("madeup")

    class Refusing(library.ndarray):
        def __dlpack__(self, **_):
            raise BufferError("not today")

    with pytest.raises(
        TypeError, match="silu: x, a Refusing, cannot be seen through DLPack: not today"
    ):
        silu(Refusing.of(runtime, np.ones(4, np.float32)))


def test_subclass_comes_back_as_its_library_makes_it(use, runtime):
    library = use("madeup")

    class Mine(library.ndarray):
        pass

    assert type(silu(Mine.of(runtime, np.ones(4, np.float32)))) is library.ndarray


def test_host_array_of_another_library():
    class HostArray:
        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, **_):
            raise AssertionError

    with pytest.raises(TypeError, match="silu: x is a HostArray in host memory; move it"):
        silu(HostArray())
