"""Exports a GGUF file for ONNX Runtime GenAI: its dense weights in float32.

python -m decode_peers.export MODEL.gguf FOLDER
"""

import subprocess
import sys
import tempfile
from pathlib import Path


def main() -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    model, folder = Path(sys.argv[1]), Path(sys.argv[2])
    file = {"pretrained_model_name_or_path": str(model.parent), "gguf_file": model.name}
    with tempfile.TemporaryDirectory() as dense:
        AutoModelForCausalLM.from_pretrained(
            **file, quantization_config=GgufConfig(dequantize=True), dtype=torch.float32
        ).save_pretrained(dense)
        AutoTokenizer.from_pretrained(**file).save_pretrained(dense)
        builder = [sys.executable, "-m", "onnxruntime_genai.models.builder"]
        wanted = ["-m", dense, "-o", str(folder), "-p", "fp32", "-e", "cpu"]
        subprocess.run([*builder, *wanted], check=True)


if __name__ == "__main__":
    main()
