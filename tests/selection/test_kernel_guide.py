"""The blocks of the guide on several backends that make a PersistentKernel, as they stand there."""

from textwrap import dedent
from types import SimpleNamespace

import pytest

import tensor_ops
from tensor_ops import backends, extension
from tensor_ops_decode import reference

EXPLICIT = """
    import yirage as yr

    # Specify backend explicitly
    ypk = yr.PersistentKernel(
        mode="decode",
        backend="cuda",  # Specify backend
        world_size=1,
        mpi_rank=0,
        # ... other parameters
    )
"""
FALLBACK = """
    import yirage as yr

    # Try multiple backends in order of preference
    ypk = yr.PersistentKernel(
        mode="decode",
        backend="cuda",
        fallback_backends=["mps", "cpu"],  # Try these if cuda fails
        world_size=1,
        mpi_rank=0,
        # ... other parameters
    )
"""
DEFAULT = """
    import yirage as yr

    # Set default backend for all subsequent operations
    yr.set_default_backend("cpu")

    # Now all operations will use CPU by default
    ypk = yr.PersistentKernel(
        mode="decode",
        # backend will default to "cpu"
        world_size=1,
        mpi_rank=0,
        # ... other parameters
    )
"""
CUDA = """
    # Check CUDA compute capability
    if yr.is_backend_available('cuda'):
        info = yr.get_backend_info('cuda')
        compute_capability = info.get('compute_capability', 0)
        print(f"CUDA Compute Capability: {compute_capability // 10}.{compute_capability % 10}")

        # Use CUDA-specific features
        ypk = yr.PersistentKernel(
            mode="decode",
            backend="cuda",
            use_cutlass_kernel=True,  # CUDA-specific option
            # ... other parameters
        )
"""
CPU = """
    # Check CPU cores
    if yr.is_backend_available('cpu'):
        info = yr.get_backend_info('cpu')
        num_cores = info.get('compute_units', 0)
        print(f"CPU cores: {num_cores}")

        # Use CPU backend
        ypk = yr.PersistentKernel(
            mode="decode",
            backend="cpu",
            num_workers=num_cores,  # Use all cores
            # ... other parameters
        )
"""
MPS = """
    # Check for Apple Silicon
    if yr.is_backend_available('mps'):
        print("Running on Apple Silicon")

        ypk = yr.PersistentKernel(
            mode="decode",
            backend="mps",
            # ... other parameters
        )
"""
BENCHMARK = """
    import yirage as yr
    import time

    def benchmark_backend(backend_name):
        if not yr.is_backend_available(backend_name):
            return None

        # Create and compile kernel
        ypk = yr.PersistentKernel(
            mode="decode",
            backend=backend_name,
            # ... parameters
        )
        ypk.compile()

        # Benchmark
        start = time.time()
        for _ in range(100):
            ypk()
        end = time.time()

        return (end - start) / 100

    # Compare backends
    for backend in yr.get_available_backends():
        latency = benchmark_backend(backend)
        if latency:
            print(f"{backend}: {latency*1000:.2f} ms/iteration")
"""
ERRORS = """
    import yirage as yr

    try:
        ypk = yr.PersistentKernel(
            mode="decode",
            backend="cuda",  # Request CUDA
            fallback_backends=["cpu"],  # Fallback to CPU
            # ... parameters
        )
    except ValueError as e:
        print(f"Backend initialization failed: {e}")

        # Check what went wrong
        if not yr.is_backend_available('cuda'):
            print("CUDA not available")
        if not yr.is_backend_available('cpu'):
            print("CPU not available")
"""
CUSTOM = """
    import yirage as yr

    # Get backend-specific configuration
    cuda_info = yr.get_backend_info('cuda')
    max_memory = cuda_info.get('max_memory', 0)
    max_shared_mem = cuda_info.get('max_shared_memory', 0)

    # Configure kernel based on backend capabilities
    ypk = yr.PersistentKernel(
        mode="decode",
        backend="cuda",
        # Adjust parameters based on available memory
        max_num_pages=max_memory // (page_size * element_size),
        # ... other parameters
    )
"""
DEVICES = """
    import yirage as yr

    # Check number of devices
    info = yr.get_backend_info('cuda')
    num_devices = info.get('device_count', 1)

    # Create kernels for each device
    kernels = []
    for device_id in range(num_devices):
        ypk = yr.PersistentKernel(
            mode="decode",
            backend="cuda",
            world_size=num_devices,
            mpi_rank=device_id,
            # ... parameters
        )
        kernels.append(ypk)
"""


def run(block, **names):
    """Run a block of the guide; only the name of the import is ours. Return its names."""
    code = dedent(block).replace("import yirage as yr", "import tensor_ops as yr")
    names = {"yr": tensor_ops, **names}
    exec(compile(code, "the guide", "exec"), names)
    return SimpleNamespace(**names)


@pytest.fixture
def no_cuda(install):
    install("cuda", available=False, CAPABILITIES={"runs_programs": True})


@pytest.fixture
def cuda(install):
    """Install a backend cuda that runs programs as the reference does."""

    def compile_program(program, tensors, *, options, **settings):
        return reference.compile_program(program, tensors, **settings)

    install(
        "cuda",
        info=lambda: {"device_count": 1, "compute_capability": 90, "max_memory": 2**30},
        supports_program=lambda program: None,
        compile_program=compile_program,
        CAPABILITIES={"runs_programs": True},
    )


@pytest.fixture
def installed_cuda(request, settings):
    """Return what the installed backend says of its device."""
    info = tensor_ops.get_backend_info("cuda")
    if not info["available"]:
        assert "cuda" not in request.config.getoption("--require-backend"), info["reason"]
        pytest.skip(f"cuda: {info['reason']}")
    return info


@pytest.fixture
def cpu(settings):
    """Return the backend that the name cpu stands for."""
    return tensor_ops.get_backend_info("cpu")["name"]


def test_a_backend_that_is_named_runs_or_none_does(cuda):
    assert run(EXPLICIT).ypk.explain().backend == "cuda"


def test_a_backend_that_is_named_and_unavailable_is_a_value_error(no_cuda):
    with pytest.raises(ValueError, match="no backend can run the program: cuda: no cuda device"):
        run(EXPLICIT)


def test_fallback_backends_are_tried_in_order(no_cuda, cpu):
    with pytest.warns(tensor_ops.BackendFallbackWarning, match="'cuda': no cuda device; backend "):
        kernel = run(FALLBACK).ypk
    assert kernel.explain().backend == cpu
    assert [step.backend for step in kernel.explain().steps] == ["cuda", "mps", cpu]


def test_nothing_falls_back_where_the_first_one_runs(cuda):
    assert run(FALLBACK).ypk.explain().backend == "cuda"


def test_the_default_backend_runs(cpu):
    kernel = run(DEFAULT).ypk
    assert kernel.explain().backend == cpu
    assert kernel.explain().decided_by == "set_default_backend()"


def test_an_option_of_cuda(cuda, capsys):
    kernel = run(CUDA).ypk
    assert capsys.readouterr().out == "CUDA Compute Capability: 9.0\n"
    assert kernel.explain().options == {"use_cutlass_kernel": True}


def test_the_cores_of_the_cpu(cpu, capsys):
    kernel = run(CPU).ypk
    cores = tensor_ops.get_backend_info("cpu")["compute_units"]
    assert capsys.readouterr().out == f"CPU cores: {cores}\n"
    assert (kernel.explain().backend, kernel.explain().num_workers) == (cpu, cores)


def test_a_backend_that_is_unavailable_is_left_alone(settings):
    assert not hasattr(run(MPS), "ypk")


def test_the_benchmark_loop(settings, cpu, capsys):
    names = list(dict.fromkeys([cpu, "python"]))
    settings.environment(BACKEND_PRIORITY=",".join(names))
    tensor_ops.reload_config()
    run(BENCHMARK)
    shown = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert shown == names


def test_the_benchmark_loop_where_opencl_is_available(install, settings, cpu, capsys):
    """It computes single ops alone, so that no line has its name and another's time."""
    install("opencl")
    assert tensor_ops.is_backend_available("opencl")
    run(BENCHMARK)
    shown = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert [name for name in shown if name != "cuda"] == list(dict.fromkeys([cpu, "python"]))


def test_error_handling_without_any_backend(no_cuda, cpu, monkeypatch, capsys):
    nothing = extension.Backend(cpu, None, "no processor")
    monkeypatch.setitem(backends.loaded, cpu, nothing)
    run(ERRORS)
    text = capsys.readouterr().out
    assert text.startswith("Backend initialization failed: no backend can run the program: ")
    assert f"cuda: no cuda device; {cpu}: no processor" in text
    assert text.endswith("CUDA not available\nCPU not available\n")


def test_error_handling_with_a_backend_to_fall_back_on(no_cuda, cpu, capsys):
    with pytest.warns(tensor_ops.BackendFallbackWarning):
        assert run(ERRORS).ypk.explain().backend == cpu
    assert capsys.readouterr().out == ""


def test_pages_are_counted_from_the_memory(cuda):
    kernel = run(CUSTOM, page_size=16, element_size=2**20).ypk
    assert kernel.explain().as_dict()["limits"]["max_num_pages"] == 2**30 // 2**24


def test_no_memory_to_count_with_is_an_error_that_says_so(settings):
    assert tensor_ops.get_backend_info("mps")["max_memory"] == 0
    with pytest.raises(ValueError, match="max_num_pages is 0: there is no memory to count with"):
        run(CUSTOM.replace("'cuda'", "'mps'"), page_size=16, element_size=2)


def test_a_kernel_for_each_device(cuda):
    assert [kernel.explain().backend for kernel in run(DEVICES).kernels] == ["cuda"]


def tokens_of(kernel, count=4):
    """Return what a kernel decodes after a prompt, and close it."""
    kernel.compile()
    request = kernel.add_request([1, 2, 3])
    for _ in range(count):
        kernel()
    tokens = kernel.tokens(request)
    kernel.close()
    return tokens


def test_the_installed_cuda_decodes_what_the_reference_does(installed_cuda, capsys):
    kernel = run(CUDA).ypk
    capability = installed_cuda["compute_capability"]
    expected = f"CUDA Compute Capability: {capability // 10}.{capability % 10}\n"
    assert capsys.readouterr().out == expected
    assert kernel.explain().backend == "cuda"
    assert kernel.explain().options == {"use_cutlass_kernel": True}
    assert "note: no GPU has run decode programs yet" in str(kernel.explain())
    with tensor_ops.PersistentKernel(backend="python") as reference:
        assert reference.explain().note is None
        assert tokens_of(kernel) == tokens_of(reference)


def test_the_installed_cuda_takes_its_own_numbers(installed_cuda):
    """Blocks for its multiprocessors, and pages that its memory has room for."""
    line = 'backend="cuda",\n'
    block = CUSTOM.replace(line, f'{line}        num_workers=cuda_info["compute_units"],\n')
    element_size = max(1, installed_cuda["max_memory"] // 2**14)
    kernel = run(block, page_size=16, element_size=element_size).ypk
    pages = installed_cuda["max_memory"] // (16 * element_size)
    assert kernel.explain().limits.num_pages == pages
    assert kernel.explain().num_workers == installed_cuda["compute_units"]
    assert len(tokens_of(kernel, 3)) == 3


def test_nothing_falls_back_where_the_installed_cuda_runs(installed_cuda):
    kernel = run(FALLBACK).ypk
    assert [step.backend for step in kernel.explain().steps] == ["cuda"]
    kernel.compile()
    kernel()
    profile = kernel.profile()
    assert profile.seconds > 0
    assert profile.work.shape == (1, len(kernel.program.nodes))
    kernel.close()


def test_the_installed_cuda_has_products_without_tensor_cores(installed_cuda):
    block = CUDA.replace("use_cutlass_kernel=True", "use_cutlass_kernel=False")
    kernel = run(block).ypk
    with tensor_ops.PersistentKernel(backend="python") as reference:
        assert tokens_of(kernel) == tokens_of(reference)


def test_the_installed_cuda_refuses_other_values_of_its_option(installed_cuda):
    block = CUDA.replace("use_cutlass_kernel=True", "use_cutlass_kernel=1")
    with pytest.raises(TypeError, match="use_cutlass_kernel must be a bool or left out, got int"):
        run(block).ypk.compile()
