"""Answers of a model with packed weights that are kept in a file."""

import tensor_ops_decode


def answer(model, backend, **options):
    """Return what the model answers, and what became of the file of packed weights."""
    with tensor_ops_decode.load(model, backend, **options) as opened:
        explanation = opened.kernel.explain()
        tokens = opened.generate("Once", max_new_tokens=8, ignore_eos=True)[0].tokens
        return tokens, explanation
