"""``python -m tensor_ops_cpp`` prints where the files are with which C++ programs are built."""

import argparse

import tensor_ops_cpp

__all__ = ["main"]


def main() -> None:
    """Print the folders that are asked for, one a line."""
    parser = argparse.ArgumentParser(
        prog="python -m tensor_ops_cpp",
        description="Print where the files are with which C++ programs are built.",
        epilog='example: cmake -B build -Dtensor_ops_DIR="$(python -m tensor_ops_cpp --cmakedir)"',
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=tensor_ops_cpp.__version__)
    folders = {
        "--cmakedir": (tensor_ops_cpp.get_cmake_dir, "the CMake package, for -Dtensor_ops_DIR="),
        "--includedir": (tensor_ops_cpp.get_include, "the headers"),
        "--libdir": (tensor_ops_cpp.get_library_dir, "the shared library"),
        "--pkgconfigdir": (tensor_ops_cpp.get_pkgconfig_dir, "files for PKG_CONFIG_PATH"),
    }
    for option, (function, described) in folders.items():
        parser.add_argument(
            option,
            action="append_const",
            dest="asked",
            const=function,
            help=f"print the folder of {described}",
        )
    asked = parser.parse_args().asked
    if not asked:
        parser.error(f"give at least one of {', '.join(folders)}")
    for function in asked:
        print(function())


if __name__ == "__main__":
    main()
