"""The guide's statements, compiled as they stand in it, and a library that is opened and closed."""

import re
import shutil

import pytest
from cpp_programs import COMPILERS, PROGRAMS, ROOT, run_compiler

# As in the guide, apart from the first folder of the include and the namespace.
GUIDE = """\
// Get available backends
auto& registry = BackendRegistry::get_instance();
auto available = registry.get_available_backends();

for (auto type : available) {
    auto* backend = registry.get_backend(type);
    std::cout << "Backend: " << backend->get_name() << std::endl;
}

// Get specific backend
auto* cuda_backend = registry.get_backend("cuda");
if (cuda_backend && cuda_backend->is_available()) {
    std::cout << "CUDA is available" << std::endl;
}

// Get default backend
auto* default_backend = get_default_backend();
"""


@pytest.mark.parametrize("compiler", COMPILERS)
def test_the_statements_of_the_guide_name_the_backends(compiler, program, fake, run, tmp_path):
    source = (PROGRAMS / "guide.cpp").read_text(encoding="utf-8")
    assert GUIDE in source
    assert "using namespace tensor_ops::backend;" in source
    assert "tensor_ops/backend/backends.h" in source
    path = program("guide", compiler=compiler)
    folder = tmp_path / "libraries"
    fake(folder)
    found = run(path, TENSOR_OPS_BACKEND_PATH=str(folder)).stdout
    assert found == "Backend: cpp\nThe default is cpp\n"
    fake(folder, "cuda", DEVICE_KIND="TENSOR_OPS_CUDA")
    found = run(path, TENSOR_OPS_BACKEND_PATH=str(folder)).stdout
    assert found == "Backend: cuda\nBackend: cpp\nCUDA is available\nThe default is cuda\n"


def test_every_header_can_be_included_alone(tmp_path):
    include = ROOT / "native/include"
    headers = sorted((include / "tensor_ops/backend").rglob("*.h"))
    assert len(headers) > 10
    for header in headers:
        text = header.read_text(encoding="utf-8")
        names = set(re.findall(r'#include "(tensor_ops/[^"]*)"', text))
        known = {each.relative_to(include).as_posix() for each in headers}
        others = {"tensor_ops/abi.h", "tensor_ops/decode.h"}
        assert names <= known | others, header
        assert "#pragma once" in text, header


def test_a_library_with_the_registry_within_may_be_closed(program, fake, run, tmp_path):
    # GCC keeps such a library loaded; clang, where there is one, does not.
    plug_in = program("plug_in", "-shared", "-fPIC", compiler=COMPILERS[-1])
    folder = tmp_path / "application"
    fake(folder / "libraries")
    # The backend is found beside the library, not beside the program or where it runs.
    plug_in = shutil.copy(plug_in, folder / "libraries/plug_in.so")
    run_compiler("cc", str(PROGRAMS / "host.c"), "-o", str(folder / "host"), "-ldl")
    assert run(folder / "host", plug_in).stdout == "found\n" * 3


def test_two_files_of_a_program_may_include_it(fake, run, tmp_path):
    """Nothing is defined twice, and both see one registry, with the folders of a definition."""
    fake(tmp_path / "of package")
    code = "#include <tensor_ops/backend/backends.h>\n"
    (tmp_path / "a.cpp").write_text(
        code + "void* other();\nint main() {\n"
        "auto& registry = tensor_ops::backend::BackendRegistry::get_instance();\n"
        'return other() == &registry && registry.get_backend("cpp") ? 0 : 1; }\n',
        encoding="utf-8",
    )
    (tmp_path / "b.cpp").write_text(
        code + "void* other() { return &tensor_ops::backend::BackendRegistry::get_instance(); }\n",
        encoding="utf-8",
    )
    headers = ["-I", str(ROOT / "native/include")]
    files = [str(tmp_path / name) for name in ("a.cpp", "b.cpp")]
    folders = f'-DTENSOR_OPS_BACKEND_FOLDERS="/no/such/folder:{tmp_path}/of package"'
    command = [COMPILERS[-1], "-std=c++17", folders, *headers, *files]
    run_compiler(*command, "-o", str(tmp_path / "a"), "-ldl")
    run(tmp_path / "a")
