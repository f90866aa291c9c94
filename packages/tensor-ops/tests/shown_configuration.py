"""Output of ``tensor-ops configure_backend --show``."""

SHOWN = """\
Current Backend Configuration:
  Preferred backend: {preferred}
  Force backend: {force}
  Priority order: {priority}

Configuration file: {path}
"""
MEANINGS = {
    "cuda": "NVIDIA CUDA",
    "opencl": "OpenCL on other devices than CPUs; on a CPU, after the others "
    "('opencl:cpu' gives it a place)",
    "cpp": "C++ (SIMD, threads)",
    "python": "Python (NumPy)",
}
DEFAULT_ORDER = ["cuda", "opencl", "cpp", "python"]


def shown(path, preferred="auto", force=None, priority=DEFAULT_ORDER, notes="", **meanings):
    """Return what --show prints; `notes` are the lines below the file's."""
    head = SHOWN.format(preferred=preferred, force=force, priority=", ".join(priority), path=path)
    entries = {**{name: MEANINGS.get(name) for name in priority}, **meanings}
    width = max(map(len, entries))
    lines = [f"  {name:{width}}  {meaning}\n" for name, meaning in entries.items()]
    return f"{head}{notes}\nThe entries of the order stand for:\n{''.join(lines)}"
