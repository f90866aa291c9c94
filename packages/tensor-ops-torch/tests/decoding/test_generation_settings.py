"""Every setting that transformers' generation knows: the same in a decoder, or refused.

`CASES` has calls for each field of ``GenerationConfig``. A field that a later transformers adds
fails until it has its row in the table of the source, and a call here.
"""

import inspect
from dataclasses import dataclass, field

import pytest
import torch
from small_decoders import PAD, PROMPTS, tokenizer
from transformers import (
    CompileConfig,
    GenerationConfig,
    GenerationMixin,
    SynthIDTextWatermarkingConfig,
    WatermarkingConfig,
)

from tensor_ops_torch.decoding.generation_settings import (
    ARGUMENTS,
    HOW,
    SETTINGS,
    RefusedSettingError,
    asked_settings,
    refusal,
)

NEW = 6
SAMPLED = {"do_sample": True}
SCORED = {"return_dict_in_generate": True, "output_scores": True}


@dataclass
class Case:
    """A call with one setting."""

    value: object
    more: dict = field(default_factory=dict)  # the settings beside it
    changes: bool = True  # whether what it returns differs from that without the setting
    in_python: bool = False  # whether Python chooses the tokens, for the sake of what is beside it


CASES = {
    "max_length": [Case(12, changes=False)],
    "max_new_tokens": [Case(3)],
    "min_length": [Case(13, {"eos_token_id": [*range(0, 256, 2)]})],
    "min_new_tokens": [Case(4, {"eos_token_id": [*range(0, 256, 2)]})],
    "early_stopping": [Case(True)],
    "max_time": [Case(1e-9), Case(60.0, changes=False)],
    "stop_strings": [Case("a", {"tokenizer": tokenizer()}, changes=False)],
    "do_sample": [Case(True, {"typical_p": 0.9})],
    "num_beams": [Case(3), Case(1, changes=False)],
    "use_mtp": [Case(True)],
    "use_cache": [Case(False), Case(True)],
    "cache_implementation": [
        *[Case(name) for name in ("dynamic", "static", "offloaded")],
        *[Case(name) for name in ("quantized", "paged")],
    ],
    "cache_config": [Case({"nbits": 4})],
    "max_cache_len": [Case(64)],
    "temperature": [Case(0.5, SAMPLED | SCORED), Case(2e6, SAMPLED, in_python=True)],
    "top_k": [Case(3, SAMPLED | SCORED), Case(0, SAMPLED | SCORED)],
    "top_p": [Case(0.5, SAMPLED | SCORED), Case(0.0, SAMPLED, in_python=True)],
    "min_p": [Case(0.3, SAMPLED | SCORED)],
    "top_h": [Case(0.5, SAMPLED)],
    "typical_p": [Case(0.5, SAMPLED)],
    "epsilon_cutoff": [Case(0.05, SAMPLED)],
    "eta_cutoff": [Case(0.3, SAMPLED)],
    "repetition_penalty": [Case(3.0), Case(0.5), Case(3.0, SCORED)],
    "encoder_repetition_penalty": [Case(9.0)],
    "length_penalty": [Case(2.0)],
    "no_repeat_ngram_size": [Case(1)],
    "bad_words_ids": [Case([[12], [98]])],
    "renormalize_logits": [Case(True, SCORED)],
    "forced_bos_token_id": [Case(7, {"inputs": [[257]]})],
    "forced_eos_token_id": [Case(7, {"max_length": 12})],
    "remove_invalid_values": [Case(True), Case(False, changes=False)],
    "exponential_decay_length_penalty": [Case((1, 9.0))],
    "suppress_tokens": [Case([*range(100)])],
    "begin_suppress_tokens": [Case([12, 98])],
    "sequence_bias": [Case({(5,): 30.0})],
    "token_healing": [Case(True)],
    "guidance_scale": [Case(3.0)],
    "watermarking_config": [
        Case(WatermarkingConfig(bias=9.0)),
        Case(SynthIDTextWatermarkingConfig(keys=[3, 1, 4], ngram_len=3), SAMPLED),
    ],
    "num_return_sequences": [Case(2, SAMPLED | {"typical_p": 0.9})],
    "output_attentions": [Case(True), Case(False, changes=False)],
    "output_hidden_states": [Case(True), Case(False, changes=False)],
    "output_scores": [Case(True, {"return_dict_in_generate": True}, changes=False)],
    "output_logits": [Case(True, {"return_dict_in_generate": True}, changes=False)],
    "return_dict_in_generate": [Case(True, changes=False)],
    "pad_token_id": [Case(9, {"eos_token_id": 12})],
    "bos_token_id": [Case(9, {"inputs": None})],
    "eos_token_id": [Case([*range(0, 256, 2)]), Case(12)],
    "encoder_no_repeat_ngram_size": [Case(1, changes=False)],
    "decoder_start_token_id": [Case(5)],
    "is_assistant": [Case(True)],
    "num_assistant_tokens": [Case(3)],
    "num_assistant_tokens_schedule": [Case("heuristic")],
    "assistant_confidence_threshold": [Case(0.3)],
    "prompt_lookup_num_tokens": [Case(3)],
    "max_matching_ngram_size": [Case(2)],
    "assistant_early_exit": [Case(1)],
    "assistant_lookbehind": [Case(3)],
    "target_lookbehind": [Case(3)],
    "assistant_ensemble_weight": [Case(0.5)],
    "speculation_type": [Case("dflash")],
    "compile_config": [Case(CompileConfig())],
    "disable_compile": [Case(True)],
    "continuous_batching_config": [Case({"block_size": 16})],
    "prefill_chunk_size": [Case(2)],
    "low_memory": [Case(True)],
    "penalty_alpha": [Case(0.6)],
    "dola_layers": [Case("high")],
    "diversity_penalty": [Case(0.5)],
    "num_beam_groups": [Case(3), Case(1, changes=False)],
    "constraints": [Case(["one"])],
    "force_words_ids": [Case([[5]])],
    "_from_model_config": [Case(True)],
    "transformers_version": [Case("4.0.0")],
}
TESTED = [
    pytest.param(name, case, id=f"{name}-{index}")
    for name, cases in CASES.items()
    for index, case in enumerate(cases)
]


def call(generate, settings):
    """Return the tokens and the scores of a call."""
    settings = {"max_new_tokens": NEW, "inputs": PROMPTS} | settings
    if "max_length" in settings:
        del settings["max_new_tokens"]
    inputs = settings["inputs"]
    if inputs is not None:
        longest = max(map(len, inputs))
        rows = [[PAD] * (longest - len(row)) + row for row in inputs]
        settings["inputs"] = torch.tensor(rows)
        settings["attention_mask"] = (settings["inputs"] != PAD).long()
    torch.manual_seed(3)
    found = generate(**settings)
    if isinstance(found, torch.Tensor):
        return found, ()
    return found.sequences, found.scores or found.logits or ()


def test_the_table_has_every_setting_of_transformers():
    config = GenerationConfig()
    assert {**vars(config), **config.to_dict()}.keys() == SETTINGS.keys() == CASES.keys()


def test_the_table_has_every_argument_of_generate():
    of_generate = inspect.signature(GenerationMixin.generate).parameters.keys()
    assert of_generate - {"self", "kwargs"} <= ARGUMENTS.keys()


def test_each_row_says_what_becomes_of_the_setting():
    for setting in (*SETTINGS.values(), *ARGUMENTS.values()):
        assert setting.how in HOW
        assert setting.says or setting.how not in ("refused", "no effect")


@pytest.mark.parametrize(("name", "case"), TESTED)
def test_a_setting_is_that_of_transformers_or_is_refused(decoder, model, name, case):
    setting, asked = SETTINGS[name], case.more | {name: case.value}
    if setting.refuses(case.value):
        with pytest.raises(RefusedSettingError, match=f"^{name}=.* is refused: ") as raised:
            call(decoder.generate, asked)
        assert raised.value.setting == name
        assert decoder.kernel.added == []
        return
    assert setting.how != "refused" or not case.changes
    tokens, scores = call(decoder.generate, asked)
    in_python = decoder.kernel.chose_in_python()
    without = {key: value for key, value in asked.items() if key != name}
    if setting.how == "no effect":
        # transformers itself may want hardware or a second model for it.
        expected, expected_scores = call(model.generate, without)
    else:
        expected, expected_scores = call(model.generate, asked)
        if case.changes:
            plain, plain_scores = call(model.generate, without)
            assert not torch.equal(plain, expected) or any(
                not torch.equal(*each) for each in zip(plain_scores, expected_scores, strict=False)
            )
    assert torch.equal(tokens, expected)
    assert len(scores) == len(expected_scores)
    for one, other in zip(scores, expected_scores, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-4)
    beside = case.in_python or bool(case.more.keys() & {"output_scores", "typical_p"})
    assert in_python == (beside or setting.how == "python")


def test_a_setting_of_a_later_transformers_is_refused_until_it_is_known(monkeypatch):
    config = GenerationConfig(unheard_of=3)  # of the caller's own, which transformers ignores too
    assert refusal(asked_settings(config, None, {})) is None
    written = GenerationConfig.__init__

    def later(self, **kwargs):
        written(self, **kwargs)
        self.unheard_of = kwargs.get("unheard_of")

    monkeypatch.setattr(GenerationConfig, "__init__", later)
    error = refusal(asked_settings(config, None, {}))
    assert error.setting == "unheard_of"
    assert "this version of tensor_ops_torch does not know" in str(error)


def test_arguments_that_are_refused_are_named(decoder, model):
    wrong = {
        "assistant_model": model,
        "synced_gpus": True,
        "custom_generate": "someone/something",
        "inputs_embeds": torch.zeros(1, 2, 32),
        "assistant_tokenizer": tokenizer(),
        "past_key_values": object(),
        "cache": object(),
    }
    for name, value in wrong.items():
        with pytest.raises(RefusedSettingError, match=f"^{name}=.* is refused: "):
            decoder.generate(PROMPTS, max_new_tokens=2, **{name: value})
    with pytest.raises(ValueError, match=r"not used by the model: \['max_new_token'\]"):
        decoder.generate(PROMPTS, max_new_tokens=2, max_new_token=2)
    with pytest.raises(RefusedSettingError, match=r"^output_router_logits= is refused"):
        decoder.generate(PROMPTS, max_new_tokens=2, output_router_logits=True)
