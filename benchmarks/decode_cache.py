"""Cost of comparing the checksums of packed weights until the first token of a new process.

Each model is packed once. Then new processes open it from its packed file, in turn with and without
the comparison, and compute a first token. Beside them the checksum alone is timed, and `zlib.crc32`
of the same bytes, on one thread each.

    python benchmarks/decode_cache.py MODEL.gguf... --json RECORD.json
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

from decode_blocks import run

PROMPT = 32
CODE = """
import json, sys, time
import numpy as np
import tensor_ops_cpp, tensor_ops_decode
model, folder, kept = sys.argv[1:]
if kept:  # what the file says of the bytes, without reading them
    known = iter(json.loads(kept))
    tensor_ops_cpp.packed_checksum = lambda packed, num_workers=None: next(known)
wall, cpu = time.perf_counter(), time.process_time()
with tensor_ops_decode.PersistentKernel(
    backend="cpp", model=model, cache=folder, max_seq_length=512
) as kernel:
    kernel.compile()
    kernel.add_request(range(100, 100 + %d), ignore_eos=True)
    while not kernel():
        pass
    times = time.perf_counter() - wall, time.process_time() - cpu
    assert "mapped" in kernel.explain().packed_file
print(*times)
"""


def measure(paths: list[Path], rounds: int) -> dict[str, Any]:
    """Return, by model, the seconds to the first token and the bytes that a second reads."""
    from threads import facts

    models = {}
    for path in paths:
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            models[path.name] = _of_model(path, Path(folder), rounds)
    return facts() | {"how": {"prompt": PROMPT, "rounds": rounds}, "models": models}


def _of_model(path: Path, folder: Path, rounds: int) -> dict[str, Any]:
    import tensor_ops_cpp
    import tensor_ops_decode
    from tensor_ops_decode.weights.safetensors import open_safetensors

    limits = {"backend": "cpp", "max_seq_length": 512}
    with tensor_ops_decode.PersistentKernel(model=path, cache=folder, **limits) as kernel:
        kernel.compile()
    (file,) = folder.glob("*.safetensors")
    tensors, metadata = open_safetensors(file)
    views = [each.file.view(each.offset, each.size, each.what) for each in tensors.values()]
    kept = json.loads(str(metadata["checksums"]))
    seconds: dict[str, list[list[float]]] = {"with": [], "without": []}
    read: dict[str, list[float]] = {"checksum": [], "crc32": []}
    known = {"with": "", "without": json.dumps([kept[name] for name in tensors])}
    for number in range(rounds + 1):
        for which in sorted(known, reverse=number % 2 == 0):  # each is first in turn
            times = _new_process(path, folder, known[which])
            if number > 0:  # the first reads the file into the page cache
                seconds[which].append(times)
        for name, function in (
            ("checksum", lambda view: tensor_ops_cpp.packed_checksum(view, num_workers=1)),
            ("crc32", zlib.crc32),
        ):
            start = time.perf_counter()
            for view in views:
                function(view)
            if number > 0:
                read[name].append(sum(view.nbytes for view in views) / _since(start))
    return {
        "bytes": sum(view.nbytes for view in views),
        "seconds": {which: [times[0] for times in each] for which, each in seconds.items()},
        "cpu_seconds": {which: [times[1] for times in each] for which, each in seconds.items()},
        "bytes_per_second": read,
    }


def _new_process(path: Path, folder: Path, known: str) -> list[float]:
    command = [sys.executable, "-c", CODE % PROMPT, path, folder, known]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [float(each) for each in done.stdout.split()]


def _since(start: float) -> float:
    return time.perf_counter() - start


def blocks(record: dict[str, Any]) -> dict[str, str]:
    """Return the blocks of the page docs/decode_performance.md."""
    lines = [
        "| model | packed, MB | first token, seconds | without comparing | ratio, quartiles "
        "| checksum, GB/s | crc32, GB/s |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, model in record["models"].items():
        compared, not_compared = (model["seconds"][which] for which in ("with", "without"))
        ratios = [a / b for a, b in zip(compared, not_compared, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
        speeds = [
            statistics.median(model["bytes_per_second"][n]) / 1e9 for n in ("checksum", "crc32")
        ]
        lines.append(
            f"| {name} | {model['bytes'] / 1e6:,.0f} | {statistics.median(compared):.2f} "
            f"| {statistics.median(not_compared):.2f} | {middle:.2f} ({low:.2f} to {high:.2f}) "
            f"| {speeds[0]:.1f} | {speeds[1]:.1f} |"
        )
    how = record["how"]
    setting = f"{record['device']}; commit {record['commit']}; {how['rounds']} rounds."
    return {"cache-setting": setting, "cache-speed": "\n".join(lines)}


if __name__ == "__main__":
    run(__doc__, measure, blocks, nargs="+")
