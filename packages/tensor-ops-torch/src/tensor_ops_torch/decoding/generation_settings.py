"""What `generate` does with each setting of transformers: the same as transformers, or it refuses.

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
    "Setting",
    "asked_settings",
    "generation_settings",
    "refusal",
]

#: What a setting can be, and what that means.
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
class Setting:
    """What becomes of one setting.

    Attributes
    ----------
    how : str
        A key of `HOW`.
    says : str
        What is to be known beside that: of a refused one the reason, and what to do instead.
    refuses : callable
        Whether a value that is not None is refused.
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

SETTINGS: Mapping[str, Setting] = {
    # How long an answer is.
    "max_length": Setting("kernel", "padding counts, as in transformers"),
    "max_new_tokens": Setting("kernel"),
    "min_length": Setting("python"),
    "min_new_tokens": Setting("python"),
    "early_stopping": Setting("no effect", _BEAMS),
    "max_time": Setting("stops"),
    "stop_strings": Setting("stops", "with tokenizer="),
    # Which search.
    "do_sample": Setting("kernel", "torch's generator decides, in the kernel by a seed for a row"),
    "num_beams": Setting("refused", _SEARCH, _above_one),
    "use_mtp": Setting("refused", _ONE_PASS, bool),
    # The cache.
    "use_cache": Setting("no effect", _OWN_CACHE),
    "cache_implementation": Setting(
        "no effect",
        f"{_OWN_CACHE}; 'quantized' is refused in favour of cache_dtype= of the decoder, 'paged' "
        "because transformers returns lists for it",
        lambda value: value in ("quantized", "paged"),
    ),
    "cache_config": Setting("no effect", "only the quantized cache reads it"),
    "max_cache_len": Setting("no effect", _OWN_CACHE),
    # What tokens are drawn from.
    "temperature": Setting("kernel", "above 1e6 in Python"),
    "top_k": Setting("kernel", "of equal logits at the border the kernel keeps the lowest tokens"),
    "top_p": Setting("kernel", "0 in Python"),
    "min_p": Setting("kernel"),
    "top_h": Setting("python"),
    "typical_p": Setting("python"),
    "epsilon_cutoff": Setting("python"),
    "eta_cutoff": Setting("python"),
    "repetition_penalty": Setting("kernel"),
    "encoder_repetition_penalty": Setting("python", "of the prompt, as in transformers"),
    "length_penalty": Setting("no effect", _BEAMS),
    "no_repeat_ngram_size": Setting("python"),
    "bad_words_ids": Setting("python"),
    "renormalize_logits": Setting("python"),
    "forced_bos_token_id": Setting("python"),
    "forced_eos_token_id": Setting("python"),
    "remove_invalid_values": Setting(
        "refused", "logits that are NaN are a LogitsError, which names the first node of it", bool
    ),
    "exponential_decay_length_penalty": Setting("python"),
    "suppress_tokens": Setting("python"),
    "begin_suppress_tokens": Setting("python"),
    "sequence_bias": Setting("python"),
    "token_healing": Setting(
        "refused", "give it the prompt that model.heal_tokens(input_ids, tokenizer) returns", bool
    ),
    "guidance_scale": Setting(
        "python", "the model itself, which must be there, reads the prompt without condition"
    ),
    "watermarking_config": Setting("python"),
    # What is returned.
    "num_return_sequences": Setting("kernel", "they share the pages of their prompt"),
    "output_attentions": Setting("refused", _INSIDE, bool),
    "output_hidden_states": Setting("refused", _INSIDE, bool),
    "output_scores": Setting("python", "with return_dict_in_generate"),
    "output_logits": Setting("python", "with return_dict_in_generate"),
    "return_dict_in_generate": Setting("kernel", "its cache is None"),
    # Special tokens.
    "pad_token_id": Setting("kernel"),
    "bos_token_id": Setting("kernel"),
    "eos_token_id": Setting("kernel", "one or several"),
    "encoder_no_repeat_ngram_size": Setting("python", "of the prompt, as in transformers"),
    "decoder_start_token_id": Setting("no effect", _ENCODERS),
    # Assistants.
    "is_assistant": Setting("refused", "a decoder is no assistant of another model", bool),
    "num_assistant_tokens": Setting("no effect", _ASSISTANTS),
    "num_assistant_tokens_schedule": Setting("no effect", _ASSISTANTS),
    "assistant_confidence_threshold": Setting("no effect", _ASSISTANTS),
    "prompt_lookup_num_tokens": Setting(
        "refused", "make the decoder with num_speculative_tokens=, which does the same", _always
    ),
    "max_matching_ngram_size": Setting("no effect", _ASSISTANTS),
    "assistant_early_exit": Setting("refused", _ONE_PASS, _always),
    "assistant_lookbehind": Setting("no effect", _ASSISTANTS),
    "target_lookbehind": Setting("no effect", _ASSISTANTS),
    "assistant_ensemble_weight": Setting("no effect", _ASSISTANTS),
    "speculation_type": Setting("no effect", _ASSISTANTS),
    # Speed.
    "compile_config": Setting("no effect", "the kernel is compiled already"),
    "disable_compile": Setting("no effect", "the kernel is compiled already"),
    "continuous_batching_config": Setting("no effect", "only generate_batch reads it"),
    "prefill_chunk_size": Setting("no effect", "max_num_batched_tokens= of the decoder is that"),
    # Searches that transformers has moved to its hub.
    "low_memory": Setting("no effect", "only contrastive search reads it"),
    "penalty_alpha": Setting("refused", _SEARCH, bool),
    "dola_layers": Setting("refused", _INSIDE, _always),
    "diversity_penalty": Setting("no effect", _BEAMS),
    "num_beam_groups": Setting("refused", _SEARCH, _above_one),
    "constraints": Setting("refused", _CONSTRAINED, _always),
    "force_words_ids": Setting("refused", _CONSTRAINED, _always),
    # Where the settings come from.
    "_from_model_config": Setting("no effect", "it says where the settings were read"),
    "transformers_version": Setting("no effect", "it says who wrote them"),
}

ARGUMENTS: Mapping[str, Setting] = {
    "inputs": Setting("kernel", "tokens, as a tensor or in lists; left padding with its mask"),
    "generation_config": Setting("kernel"),
    "logits_processor": Setting("python"),
    "stopping_criteria": Setting("stops"),
    "prefix_allowed_tokens_fn": Setting("python"),
    "synced_gpus": Setting("refused", "the kernel runs in this process alone", bool),
    "assistant_model": Setting("refused", _ONE_PASS, _always),
    "assistant_tokenizer": Setting("refused", _ONE_PASS, _always),
    "streamer": Setting("stops", "it gets each token once, and the prompt first"),
    "negative_prompt_ids": Setting("python", "for guidance_scale"),
    "negative_prompt_attention_mask": Setting("python", "for guidance_scale"),
    "custom_generate": Setting(
        "refused", "a decoder is one itself: model.generate(..., custom_generate=decoder)", _always
    ),
    "tokenizer": Setting("stops", "for stop_strings"),
    "trust_remote_code": Setting("no effect", "nothing is loaded"),
    "inputs_embeds": Setting("refused", "a step begins with tokens; give input_ids", _always),
    "cache": Setting(
        "refused",
        "the kernel keeps its cache itself: give the whole text, and what it has computed of it "
        "is not computed again",
        _always,
    ),
    "past_key_values": Setting("refused", "as cache", _always),
}


def generation_settings() -> dict[str, Setting]:
    """Return what a decoder does with each field of transformers' ``GenerationConfig``.

    Returns
    -------
    dict of str to Setting
        `Setting.how` is ``"kernel"``, ``"stops"``, ``"python"``, ``"no effect"`` or ``"refused"``.

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

    Parameters
    ----------
    asked : mapping
        As `asked_settings` returns it.
    has_model : bool, optional
        Whether the model that a decoder was made of is still there.

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
