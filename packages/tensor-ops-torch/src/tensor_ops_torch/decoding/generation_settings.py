"""The settings of transformers: `generate` does with each the same as transformers, or refuses it.

One table has the fields of transformers' ``GenerationConfig``, another the arguments of its
``generate``. A field that a later transformers adds is refused until it has its row here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tensor_ops_torch.decoding.errors import RefusedSettingError

if TYPE_CHECKING:
    from transformers import GenerationConfig

__all__ = [
    "ARGUMENTS",
    "HOW",
    "SETTINGS",
    "RefusedSettingError",
    "GenerationSetting",
    "asked_settings",
    "generation_settings",
    "refusal",
]

#: The outcomes of settings, and what they mean.
HOW = {
    "kernel": "it is honoured within the step",
    "stops": "it is honoured, and Python looks at the tokens after each step",
    "python": "it is honoured by transformers' own class, and Python chooses each token",
    "no effect": "it changes nothing in the answer",
    "refused": "it raises a `RefusedSettingError`",
}


def _never(value: Any) -> bool:
    return False


def _always(value: Any) -> bool:
    return True


def _above_one(value: Any) -> bool:
    return bool(value != 1)


@dataclass(frozen=True)
class GenerationSetting:
    """What becomes of one setting.

    Attributes
    ----------
    how : {"kernel", "stops", "python", "no effect", "refused"}
        Whether it is honoured within the step, by a look at the tokens after each, or by
        transformers' own class, after which Python chooses the token; or whether it changes nothing
        in the answer; or whether it is an error to ask for it.
    says : str
        What is to be known beside that: of a refused one the reason, and what to do instead.
    refuses : callable
        Whether a value that is not None is refused.

    Examples
    --------
    >>> beams = generation_settings()["num_beams"]
    >>> beams.how, beams.refuses(1), beams.refuses(4)
    ('refused', False, True)
    """

    how: str
    says: str = ""
    refuses: Callable[[Any], bool] = _never


_BEAMS = "only beam search reads it, which num_beams asks for"
_ASSISTANTS = "only assisted generation reads it"
_ONE_PASS = "the kernel has no such second model or head; a decoder that was made with "
_ONE_PASS += "num_speculative_tokens= guesses tokens without changing them"
_INSIDE = "a step is one native call, which keeps nothing from within; ask the model itself"
_ENCODERS = "only models with an encoder have it"
_OWN_CACHE = "the kernel has a paged cache of its own, always"
_SEARCH = "the kernel writes one continuation of each prompt; leave it out, or use model.generate"
_CONSTRAINED = "constrained search needs beams; leave it out, or use model.generate"

SETTINGS: Mapping[str, GenerationSetting] = {
    # The length of an answer.
    "max_length": GenerationSetting("kernel", "padding counts, as in transformers"),
    "max_new_tokens": GenerationSetting("kernel"),
    "min_length": GenerationSetting("python"),
    "min_new_tokens": GenerationSetting("python"),
    "early_stopping": GenerationSetting("no effect", _BEAMS),
    "max_time": GenerationSetting("stops"),
    "stop_strings": GenerationSetting("stops", "with tokenizer="),
    # The search.
    "do_sample": GenerationSetting(
        "kernel", "torch's generator decides, in the kernel by a seed for a row"
    ),
    "num_beams": GenerationSetting("refused", _SEARCH, _above_one),
    "use_mtp": GenerationSetting("refused", _ONE_PASS, bool),
    # The cache.
    "use_cache": GenerationSetting("no effect", _OWN_CACHE),
    "cache_implementation": GenerationSetting(
        "no effect",
        f"{_OWN_CACHE}; 'quantized' is refused in favour of cache_dtype= of the decoder, 'paged' "
        "because transformers returns lists for it",
        lambda value: value in ("quantized", "paged"),
    ),
    "cache_config": GenerationSetting("no effect", "only the quantized cache reads it"),
    "max_cache_len": GenerationSetting("no effect", _OWN_CACHE),
    # The tokens that are drawn from.
    "temperature": GenerationSetting("kernel", "above 1e6 in Python"),
    "top_k": GenerationSetting(
        "kernel", "of equal logits at the border the kernel keeps the lowest tokens"
    ),
    "top_p": GenerationSetting("kernel", "0 in Python"),
    "min_p": GenerationSetting("kernel"),
    "top_h": GenerationSetting("python"),
    "typical_p": GenerationSetting("python"),
    "epsilon_cutoff": GenerationSetting("python"),
    "eta_cutoff": GenerationSetting("python"),
    "repetition_penalty": GenerationSetting("kernel"),
    "encoder_repetition_penalty": GenerationSetting("python", "of the prompt, as in transformers"),
    "length_penalty": GenerationSetting("no effect", _BEAMS),
    "no_repeat_ngram_size": GenerationSetting("python"),
    "bad_words_ids": GenerationSetting("python"),
    "renormalize_logits": GenerationSetting("python"),
    "forced_bos_token_id": GenerationSetting("python"),
    "forced_eos_token_id": GenerationSetting("python"),
    "remove_invalid_values": GenerationSetting(
        "refused", "logits that are NaN are a LogitsError, which names the first node of it", bool
    ),
    "exponential_decay_length_penalty": GenerationSetting("python"),
    "suppress_tokens": GenerationSetting("python"),
    "begin_suppress_tokens": GenerationSetting("python"),
    "sequence_bias": GenerationSetting("python"),
    "token_healing": GenerationSetting(
        "refused", "give it the prompt that model.heal_tokens(input_ids, tokenizer) returns", bool
    ),
    "guidance_scale": GenerationSetting(
        "python", "the model itself, which must be there, reads the prompt without condition"
    ),
    "watermarking_config": GenerationSetting("python"),
    # The result.
    "num_return_sequences": GenerationSetting("kernel", "they share the pages of their prompt"),
    "output_attentions": GenerationSetting("refused", _INSIDE, bool),
    "output_hidden_states": GenerationSetting("refused", _INSIDE, bool),
    "output_scores": GenerationSetting("python", "with return_dict_in_generate"),
    "output_logits": GenerationSetting("python", "with return_dict_in_generate"),
    "return_dict_in_generate": GenerationSetting("kernel", "its cache is None"),
    # Special tokens.
    "pad_token_id": GenerationSetting("kernel"),
    "bos_token_id": GenerationSetting("kernel"),
    "eos_token_id": GenerationSetting("kernel", "one or several"),
    "encoder_no_repeat_ngram_size": GenerationSetting(
        "python", "of the prompt, as in transformers"
    ),
    "decoder_start_token_id": GenerationSetting("no effect", _ENCODERS),
    # Assistants.
    "is_assistant": GenerationSetting(
        "refused", "a decoder is no assistant of another model", bool
    ),
    "num_assistant_tokens": GenerationSetting("no effect", _ASSISTANTS),
    "num_assistant_tokens_schedule": GenerationSetting("no effect", _ASSISTANTS),
    "assistant_confidence_threshold": GenerationSetting("no effect", _ASSISTANTS),
    "prompt_lookup_num_tokens": GenerationSetting(
        "refused", "make the decoder with num_speculative_tokens=, which does the same", _always
    ),
    "max_matching_ngram_size": GenerationSetting("no effect", _ASSISTANTS),
    "assistant_early_exit": GenerationSetting("refused", _ONE_PASS, _always),
    "assistant_lookbehind": GenerationSetting("no effect", _ASSISTANTS),
    "target_lookbehind": GenerationSetting("no effect", _ASSISTANTS),
    "assistant_ensemble_weight": GenerationSetting("no effect", _ASSISTANTS),
    "speculation_type": GenerationSetting("no effect", _ASSISTANTS),
    # Speed.
    "compile_config": GenerationSetting("no effect", "the kernel is compiled already"),
    "disable_compile": GenerationSetting("no effect", "the kernel is compiled already"),
    "continuous_batching_config": GenerationSetting("no effect", "only generate_batch reads it"),
    "prefill_chunk_size": GenerationSetting(
        "no effect", "max_num_batched_tokens= of the decoder is that"
    ),
    # Searches that transformers has moved to its hub.
    "low_memory": GenerationSetting("no effect", "only contrastive search reads it"),
    "penalty_alpha": GenerationSetting("refused", _SEARCH, bool),
    "dola_layers": GenerationSetting("refused", _INSIDE, _always),
    "diversity_penalty": GenerationSetting("no effect", _BEAMS),
    "num_beam_groups": GenerationSetting("refused", _SEARCH, _above_one),
    "constraints": GenerationSetting("refused", _CONSTRAINED, _always),
    "force_words_ids": GenerationSetting("refused", _CONSTRAINED, _always),
    # The source of the settings.
    "_from_model_config": GenerationSetting("no effect", "it says where the settings were read"),
    "transformers_version": GenerationSetting("no effect", "it says who wrote them"),
}

ARGUMENTS: Mapping[str, GenerationSetting] = {
    "inputs": GenerationSetting(
        "kernel", "tokens, as a tensor or in lists; left padding with its mask"
    ),
    "generation_config": GenerationSetting("kernel"),
    "logits_processor": GenerationSetting("python"),
    "stopping_criteria": GenerationSetting("stops"),
    "prefix_allowed_tokens_fn": GenerationSetting("python"),
    "synced_gpus": GenerationSetting("refused", "the kernel runs in this process alone", bool),
    "assistant_model": GenerationSetting("refused", _ONE_PASS, _always),
    "assistant_tokenizer": GenerationSetting("refused", _ONE_PASS, _always),
    "streamer": GenerationSetting("stops", "it gets each token once, and the prompt first"),
    "negative_prompt_ids": GenerationSetting("python", "for guidance_scale"),
    "negative_prompt_attention_mask": GenerationSetting("python", "for guidance_scale"),
    "custom_generate": GenerationSetting(
        "refused", "a decoder is one itself: model.generate(..., custom_generate=decoder)", _always
    ),
    "tokenizer": GenerationSetting("stops", "for stop_strings"),
    "trust_remote_code": GenerationSetting("no effect", "nothing is loaded"),
    "inputs_embeds": GenerationSetting(
        "refused", "a step begins with tokens; give input_ids", _always
    ),
    "cache": GenerationSetting(
        "refused",
        "the kernel keeps its cache itself: give the whole text, and what it has computed of it "
        "is not computed again",
        _always,
    ),
    "past_key_values": GenerationSetting("refused", "as cache", _always),
}


def generation_settings() -> dict[str, GenerationSetting]:
    """Return what a decoder does with each field of transformers' ``GenerationConfig``.

    Returns
    -------
    dict of str to GenerationSetting
        By the name of the field.

    Examples
    --------
    >>> settings = generation_settings()
    >>> settings["top_p"].how, settings["typical_p"].how, settings["num_beams"].how
    ('kernel', 'python', 'refused')
    """
    return dict(SETTINGS)


def asked_settings(
    default: GenerationConfig, config: GenerationConfig | None, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the settings of a call that are not None, by the order of transformers.

    An argument is stronger than the configuration of the call, and that than the model's.

    Examples
    --------
    >>> from transformers import GenerationConfig
    >>> asked_settings(GenerationConfig(top_k=3, top_p=0.5), None, {"top_k": 4, "top_p": None})
    {'top_k': 4}
    """
    asked = dict(arguments)
    for each in (config, default):
        for name, value in vars(each).items() if each is not None else ():
            if value is not None:
                asked.setdefault(name, value)
    return {name: value for name, value in asked.items() if value is not None}


def refusal(asked: Mapping[str, Any], *, has_model: bool = True) -> RefusedSettingError | None:
    """Return the error of the first setting that is refused, None if there is none.

    `asked` is what `asked_settings` returns; `has_model` says whether the model that a decoder was
    made of is still there.

    Examples
    --------
    >>> refusal({"num_beams": 1, "top_k": 50}) is None
    True
    >>> refusal({"num_beams": 4}).setting
    'num_beams'
    """
    known = {**SETTINGS, **ARGUMENTS}
    from transformers import GenerationConfig  # only here: what is public needs no transformers

    fields = vars(GenerationConfig())
    for name, value in asked.items():
        setting = known.get(name)
        if setting is None and name in fields:
            says = "this version of tensor_ops_torch does not know what it means; leave it out"
        elif setting is not None and setting.refuses(value):
            says = setting.says
        elif name == "guidance_scale" and value != 1 and not has_model:
            says = f"{known[name].says}; hold the model that the decoder was made of"
        else:
            continue
        return RefusedSettingError(f"{name}={_shown(value)} is refused: {says}", name)
    return None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 and "\n" not in text else f"<{type(value).__name__}>"
