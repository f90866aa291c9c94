"""Explanations of a decoder."""

import json

from model_families import small_model

from tensor_ops_torch import decoder


def test_it_says_what_runs_where():
    with decoder(small_model(), backend="cpp", quantize="q8_0", max_seq_length=64) as fast:
        found = fast.explain()
        assert (found.model, found.runs, found.reason) == ("LlamaForCausalLM", "kernel", None)
        assert found.weights == {"q8_0": 15, "f32": 5}
        assert found.kernel.backend == "cpp"
        assert (found.merged, found.is_released) == ((), False)
        text = str(found)
        assert text.startswith(
            "LlamaForCausalLM: a kernel of the backend cpp runs all of a step\n  tensors: "
        )
        assert "    decided by backend= of PersistentKernel() (named)" in text
        plain = json.loads(json.dumps(found.as_dict(), default=str))
        assert plain["kernel"]["limits"]["max_seq_length"] == 64
