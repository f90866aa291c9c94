"""The emulated CUDA runtime by ctypes, and arrays of made-up libraries in its memory."""

import ctypes
import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tensor_ops_cuda import _native

# The kernels and, in an emulated build, CUDA's runtime.
(LIBRARY,) = Path(_native.__file__).parent.glob("*tensor_ops_cuda.*")
CAPSULES = {False: b"dltensor", True: b"dltensor_versioned"}
NAMES = {"float32": (2, 32), "float16": (2, 16), "bfloat16": (4, 16), "float64": (2, 64)}


class CudaError(Exception):
    """A call of the runtime failed."""


class Runtime:
    """The functions of the runtime; a code that is not success raises."""

    def __init__(self, library=LIBRARY):
        self.library = ctypes.CDLL(str(library))
        self.library.cudaGetErrorName.restype = ctypes.c_char_p

    def __getattr__(self, name):
        function = getattr(self.library, name)

        def call(*args):
            code = function(*args)
            if code:
                raise CudaError(self.library.cudaGetErrorName(code).decode())

        return call

    def taken(self, device):
        """Return the bytes of memory of a device that are in use."""
        self.cudaSetDevice(device)
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
        self.cudaSetDevice(0)
        return total.value - free.value

    def stream(self):
        """Return the handle of a new stream that does not wait for the default one."""
        handle = ctypes.c_void_p()
        self.cudaStreamCreateWithFlags(ctypes.byref(handle), 1)
        return handle.value

    def is_idle(self, stream):
        """Return whether a stream has done all that it was asked to do."""
        code = self.library.cudaStreamQuery(ctypes.c_void_p(stream))
        if code not in {0, 600}:
            raise CudaError(self.library.cudaGetErrorName(code).decode())
        return code == 0

    def synchronize(self, stream):
        self.cudaStreamSynchronize(ctypes.c_void_p(stream))

    def memory(self, host, device=0):
        """Return the address of new device memory with the bytes of a host array, once padded."""
        self.cudaSetDevice(device)
        address = ctypes.c_void_p()
        self.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(max(host.nbytes, 1)))
        if host.nbytes:
            flat = np.ascontiguousarray(host)
            self.cudaMemcpy(
                address, ctypes.c_void_p(flat.ctypes.data), ctypes.c_size_t(host.nbytes), 1
            )
        self.cudaSetDevice(0)
        return address.value

    def upload_later(self, address, pinned, size, stream):
        """Enqueue a copy from pinned memory."""
        self.cudaMemcpyAsync(
            ctypes.c_void_p(address), ctypes.c_void_p(pinned), ctypes.c_size_t(size), 1,
            ctypes.c_void_p(stream),
        )  # fmt: skip

    def pinned(self, host):
        """Return the address of new pinned memory with the bytes of a host array."""
        address = ctypes.c_void_p()
        self.cudaHostAlloc(ctypes.byref(address), ctypes.c_size_t(host.nbytes), 0)
        ctypes.memmove(address, host.ctypes.data, host.nbytes)
        return address.value

    def set_memory(self, device=4 << 30, pinned=4 << 30):
        """Say how many bytes a device has, and how many of the host can be pinned."""
        self.emulatedSetMemory(ctypes.c_size_t(device), ctypes.c_size_t(pinned))

    def read(self, address, count, dtype):
        """Return `count` elements of device memory, after all work is done."""
        host = np.empty(count, dtype)
        self.cudaDeviceSynchronize()
        to, size = ctypes.c_void_p(host.ctypes.data), ctypes.c_size_t(host.nbytes)
        self.cudaMemcpy(to, ctypes.c_void_p(address), size, 2)
        return host


class Capture:
    """A stream whose work becomes a graph."""

    def __init__(self, runtime, stream):
        self.runtime, self.stream = runtime, ctypes.c_void_p(stream)

    def __enter__(self):
        self.runtime.cudaStreamBeginCapture(self.stream, 0)
        return self

    def __exit__(self, *_):
        graph, self.graph = ctypes.c_void_p(), ctypes.c_void_p()
        self.runtime.cudaStreamEndCapture(self.stream, ctypes.byref(graph))
        self.runtime.cudaGraphInstantiate(ctypes.byref(self.graph), graph, 0)

    def launch(self):
        self.runtime.cudaGraphLaunch(self.graph, self.stream)


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):
    _fields_ = (("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", Deleter))


class ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    )


@dataclass
class Array:
    """Device memory seen as an array; strides are in elements."""

    runtime: Runtime
    address: int
    shape: tuple
    strides: tuple
    dtype: str
    index: int = 0
    read_only: bool = False

    @classmethod
    def of(cls, runtime, view, device=0, **more):
        """Copy a NumPy array and what lies around it, as its strides tell, to the device."""
        base = view
        while isinstance(base.base, np.ndarray):
            base = base.base
        start = view.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        address = runtime.memory(base.ravel("K"), device) + start
        strides = tuple(step // view.itemsize for step in view.strides)
        return cls(runtime, address, view.shape, strides, str(view.dtype), device, **more)

    def numpy(self):
        """Return the elements, after all work is done."""
        import ml_dtypes

        dtype = np.dtype(ml_dtypes.bfloat16 if self.dtype == "bfloat16" else self.dtype)
        steps = [(size - 1) * step for size, step in zip(self.shape, self.strides, strict=True)]
        low, high = sum(s for s in steps if s < 0), sum(s for s in steps if s > 0)
        if 0 in self.shape:
            return np.empty(self.shape, dtype)
        flat = self.runtime.read(self.address + low * dtype.itemsize, high - low + 1, dtype)
        strides = [step * dtype.itemsize for step in self.strides]
        return np.lib.stride_tricks.as_strided(flat[-low:], self.shape, strides).copy()

    def fill(self, tensor):
        """Write a DLTensor; return what must live as long as it."""
        shape = (ctypes.c_int64 * max(len(self.shape), 1))(*self.shape)
        strides = (ctypes.c_int64 * max(len(self.shape), 1))(*self.strides)
        tensor.data, tensor.device_type, tensor.device_id = self.address, 2, self.index
        tensor.ndim, tensor.lanes, tensor.byte_offset = len(self.shape), 1, 0
        tensor.code, tensor.bits = NAMES.get(self.dtype, (0, 32))
        tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
        tensor.strides = ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64))
        return shape, strides


class Leases:
    """Managed tensors that were handed out, until their deleter is called."""

    def __init__(self):
        self.lent = {}
        self.deleter = Deleter(lambda address: self.lent.pop(address) and None)

    def lend(self, array, versioned):
        managed = ManagedVersioned() if versioned else Managed()
        managed.deleter = self.deleter
        if versioned:
            managed.major, managed.minor, managed.flags = 1, 0, int(array.read_only)
        kept = array.fill(managed.tensor)
        self.lent[ctypes.addressof(managed)] = (managed, kept, array)
        return managed


def new_capsule(pointer, name):
    make = ctypes.pythonapi.PyCapsule_New
    make.restype = ctypes.py_object
    make.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return make(ctypes.addressof(pointer), name, None)


def capsule_pointer(capsule, name):
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype = ctypes.c_void_p
    get.argtypes = (ctypes.py_object, ctypes.c_char_p)
    return get(capsule, name)


def from_capsule(runtime, capsule, kind):
    """Return an array over the memory of a versioned capsule, which lives as long."""
    address = capsule_pointer(capsule, CAPSULES[True])
    tensor = ManagedVersioned.from_address(address).tensor
    name = next(name for name, code in NAMES.items() if code == (tensor.code, tensor.bits))
    array = kind(
        runtime, tensor.data, tuple(tensor.shape[: tensor.ndim]),
        tuple(tensor.strides[: tensor.ndim]), name, tensor.device_id,
    )  # fmt: skip
    array.capsule = capsule
    return array


@dataclass
class InterfaceArray(Array):
    """Speaks ``__cuda_array_interface__``."""

    stream: int | None = None

    @property
    def __cuda_array_interface__(self):
        dtype = np.dtype(self.dtype)
        return {
            "shape": self.shape,
            "strides": tuple(step * dtype.itemsize for step in self.strides),
            "typestr": dtype.str,
            "data": (self.address, self.read_only),
            "version": 3,
            "stream": self.stream,
        }


def new_library(runtime, name, *, versioned=True, stream=None):
    """Return a made-up module whose arrays speak DLPack's protocol.

    With a stream it has a current one, as CuPy does, under CuPy's name.
    """
    import types

    module = types.ModuleType(name)
    module.leases = Leases()
    module.asked = []
    module.given = []

    @dataclass
    class ProtocolArray(Array):
        def __dlpack_device__(self):
            return (2, self.index)

        def __dlpack__(self, *, stream, **more):
            if more and not versioned:
                raise TypeError("unexpected keyword argument 'max_version'")
            module.asked.append((stream, more))
            managed = module.leases.lend(self, versioned)
            return new_capsule(managed, CAPSULES[versioned])

    def from_dlpack(array):
        module.given.append(type(array).__name__)
        capsule = array.__dlpack__(stream=stream or 1, max_version=(1, 0))
        return from_capsule(runtime, capsule, ProtocolArray)

    ProtocolArray.__module__ = name
    module.ndarray, module.from_dlpack = ProtocolArray, from_dlpack
    if stream is not None:
        module.cuda = types.SimpleNamespace(
            get_current_stream=lambda: types.SimpleNamespace(ptr=stream)
        )
    return module


class ExchangeLibrary:
    """A made-up library whose arrays' type has DLPack's C exchange API, as torch's has."""

    def __init__(self, runtime, stream):
        self.runtime, self.current, self.leases = runtime, stream, Leases()
        self.fails = None
        self.alive = {}
        self._numbers = itertools.count()

        @dataclass
        class Tensor(Array):
            requires_grad: bool = False

        self.Tensor = Tensor
        self._api = self._new_api()
        Tensor.__dlpack_c_exchange_api__ = new_capsule(self._api, b"dlpack_exchange_api")

    def _new_api(self):
        pointer, integer = ctypes.c_void_p, ctypes.c_int
        self._set_error = ctypes.CFUNCTYPE(None, pointer, ctypes.c_char_p, ctypes.c_char_p)

        class Api(ctypes.Structure):
            _fields_ = (
                ("major", ctypes.c_uint32),
                ("minor", ctypes.c_uint32),
                ("previous", pointer),
                ("allocate", ctypes.CFUNCTYPE(integer, pointer, pointer, pointer, self._set_error)),
                ("managed_from_object", ctypes.CFUNCTYPE(integer, pointer, pointer)),
                ("managed_to_object", ctypes.CFUNCTYPE(integer, pointer, pointer)),
                ("tensor_from_object", ctypes.CFUNCTYPE(integer, pointer, pointer)),
                (
                    "current_stream",
                    ctypes.CFUNCTYPE(integer, ctypes.c_int32, ctypes.c_int32, pointer),
                ),
            )

        types = dict(Api._fields_)
        return Api(
            1, 3, None,
            types["allocate"](self._allocate),
            types["managed_from_object"](lambda *_: -1),
            types["managed_to_object"](self._to_object),
            types["tensor_from_object"](self._from_object),
            types["current_stream"](self._current_stream),
        )  # fmt: skip

    def _from_object(self, address, out):
        array = ctypes.cast(address, ctypes.py_object).value
        array.kept = array.fill(DLTensor.from_address(out))
        return 0

    def _allocate(self, prototype, out, context, set_error):
        if self.fails:
            set_error(context, self.fails.encode(), b"the made-up library says so")
            return -1
        wanted = DLTensor.from_address(prototype)
        name = next(name for name, code in NAMES.items() if code == (wanted.code, wanted.bits))
        shape = tuple(wanted.shape[: wanted.ndim])
        strides = tuple(wanted.strides[: wanted.ndim])
        bytes_ = int(np.prod(shape)) * wanted.bits // 8
        address = ctypes.c_void_p()
        self.runtime.cudaMallocAsync(
            ctypes.byref(address), ctypes.c_size_t(max(bytes_, 1)), ctypes.c_void_p(self.current)
        )
        array = self.Tensor(self.runtime, address.value, shape, strides, name, wanted.device_id)
        managed = self.leases.lend(array, versioned=True)
        ctypes.c_void_p.from_address(out).value = ctypes.addressof(managed)
        return 0

    def _to_object(self, managed, out):
        array = self.leases.lent.pop(managed)[2]
        increase = ctypes.pythonapi.Py_IncRef
        increase.argtypes = (ctypes.py_object,)
        increase(array)
        ctypes.c_void_p.from_address(out).value = id(array)
        return 0

    def _current_stream(self, kind, index, out):
        ctypes.c_void_p.from_address(out).value = self.current
        return 0
