"""The tables that are made of a record of decoders beside transformers."""

import json

import torch_decoder


def entry(way, packed):
    seconds = {"step of 1": [0.1, 0.02, 0.01], "step of 8": [0.04], "first token": [0.3, 0.1]}
    return {"dtype": "float32", "way": way, "seconds": seconds, "packed": packed}


def test_tables_have_medians_and_the_part_of_the_bandwidth(tmp_path):
    bandwidth = [[0.5e10, 10.0**10], [10.0**10, 0.98e10], [10.0**10, 10.0**10]]
    memory = {"weights": 3 << 20, "caches": 1 << 20}
    packed = {"seconds": 0.5, "memory": memory, "reads": 10**8, "bandwidth": bandwidth}
    content = {
        "format": torch_decoder.FORMAT,
        "machine": {"cpu": "a CPU"},
        **dict.fromkeys(("torch", "transformers", "tensor_ops_cpp"), "1.0"),
        "threads": 2,
        "models": [entry(torch_decoder.EAGER, None), entry(torch_decoder.KERNEL, packed)],
    }
    (tmp_path / "record.json").write_text(json.dumps(content), encoding="utf-8")
    made = torch_decoder.blocks(torch_decoder.content_of(tmp_path / "record.json"))
    assert made["decoder setting"] == (
        "PyTorch 1.0, transformers 1.0, tensor-ops-cpp 1.0 on a CPU, 2 threads."
    )
    assert made["decoder tokens"].splitlines()[2:] == [
        "| float32 | transformers | 50.0 | 200.0 | 200 ms |",
        "| float32 | decoder | 50.0 | 200.0 | 200 ms |",
    ]
    assert made["decoder memory"].splitlines()[2:] == [
        "| float32 | decoder | 0.50 s | 3 MiB | 1 MiB | 10.0 GB/s | 50% |",
    ]
