"""The loop over tokens that takes the place of transformers' own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from transformers import (
    EosTokenCriteria,
    GenerationConfig,
    LogitsProcessor,
    MaxLengthCriteria,
    StoppingCriteria,
    StoppingCriteriaList,
)
from transformers.generation import BaseStreamer, GenerateDecoderOnlyOutput

from tensor_ops_torch.decoding.generation_settings import RefusedSettingError
from tensor_ops_torch.decoding.kernel_rows import CallerSampledRows, KernelSampledRows
from tensor_ops_torch.decoding.kernel_sampling import sampling_settings
from tensor_ops_torch.decoding.prompts import pad_token_of, row_starts, tokens_of_rows

if TYPE_CHECKING:
    from tensor_ops_decode import PersistentKernel

__all__ = ["Output", "continue_prompts"]

# For how long steps follow one another before a streamer gets their tokens.
_SECONDS_OF_STEPS = 0.03

Output: TypeAlias = torch.Tensor | GenerateDecoderOnlyOutput


def continue_prompts(
    kernel: PersistentKernel,
    input_ids: torch.Tensor,
    logits_processor: Sequence[LogitsProcessor],
    stopping_criteria: Sequence[StoppingCriteria],
    generation_config: GenerationConfig,
    streamer: BaseStreamer | None = None,
    attention_mask: torch.Tensor | None = None,
    position_ids: torch.Tensor | None = None,
    **model_kwargs: Any,
) -> Output:
    """Return what follows prompts, from all that transformers has prepared."""
    unknown = sorted(
        name
        for name, value in model_kwargs.items()
        if value is not None and name not in ("cache", "logits_to_keep", "use_cache")
    )
    if unknown:
        raise RefusedSettingError(
            f"{unknown[0]}= is refused: the kernel takes tokens and their attention_mask, and "
            "nothing else that the model's forward knows",
            unknown[0],
        )
    starts = row_starts(input_ids, attention_mask)
    _check_positions(position_ids, starts, input_ids.shape[1])
    prompts, config = tokens_of_rows(input_ids, starts), generation_config
    max_lengths = [each.max_length for each in stopping_criteria if _is(each, MaxLengthCriteria)]
    longest = kernel.program.limits.longest
    most = min(max_lengths, default=longest + 1) - input_ids.shape[1]
    is_dict = bool(config.return_dict_in_generate)
    keeps_scores = is_dict and (config.output_scores or config.output_logits)
    settings = sampling_settings(logits_processor, bool(config.do_sample), starts)
    if keeps_scores or settings is None:
        return _chosen_in_python(
            CallerSampledRows(kernel, prompts, most),
            input_ids,
            logits_processor,
            stopping_criteria,
            config,
            streamer,
        )
    tokens = _chosen_by_kernel(
        kernel, input_ids, prompts, settings, most, stopping_criteria, config, streamer
    )
    return GenerateDecoderOnlyOutput(sequences=tokens) if is_dict else tokens


def _chosen_by_kernel(
    kernel: PersistentKernel,
    input_ids: torch.Tensor,
    prompts: list[list[int]],
    settings: dict[str, float],
    max_new_tokens: int,
    stopping_criteria: Sequence[StoppingCriteria],
    config: GenerationConfig,
    streamer: BaseStreamer | None,
) -> torch.Tensor:
    """Return prompts with the tokens that the kernel chooses after them."""
    ends, vocabulary = _end_tokens(stopping_criteria), kernel.program.values["logits"].columns
    pads, pad_token = _pads(stopping_criteria), pad_token_of(vars(config), ends)
    known = [token for token in ends if 0 <= token < vocabulary]
    how = {**settings, "max_new_tokens": max_new_tokens, "end_tokens": known}
    rows = [{**how, "seed": seed} for seed in _seeds(len(prompts), "temperature" in settings)]
    criteria = StoppingCriteriaList(
        each for each in stopping_criteria if not _is(each, MaxLengthCriteria, EosTokenCriteria)
    )
    # A step after one that a criterion ends would be in vain.
    most_steps = 1 if criteria else max_new_tokens
    seconds = math.inf if streamer is None else _SECONDS_OF_STEPS
    done = torch.zeros(len(prompts), dtype=torch.bool, device=input_ids.device)
    columns: list[list[int]] = []
    tokens = input_ids
    in_step = bool(criteria) or streamer is not None
    # closing() ends the rows even where Ctrl-C comes just as their own __exit__ begins.
    with closing(KernelSampledRows(kernel, prompts, rows, in_step=in_step)) as chosen, chosen:
        for column in chosen.columns(most_steps, seconds, pad_token):
            columns.append(column)
            if streamer is not None:
                streamer.put(torch.tensor(column))
            if criteria:
                tokens = _joined(tokens, [column])
                done = done | criteria(tokens, None)
                if not pads:
                    if done.all():
                        break
                    continue
                for row in torch.nonzero(done).flatten().tolist():
                    chosen.cut(row, len(columns))
    if streamer is not None:
        streamer.end()
    return _joined(input_ids, columns)


def _chosen_in_python(
    rows: CallerSampledRows,
    input_ids: torch.Tensor,
    logits_processor: Any,
    stopping_criteria: Any,
    config: GenerationConfig,
    streamer: BaseStreamer | None,
) -> Output:
    """Return prompts with tokens that processors and torch's generator choose after them.

    It is transformers' loop, with the logits of the kernel.
    """
    pads, pad_token = _pads(stopping_criteria), pad_token_of(vars(config))
    is_dict = bool(config.return_dict_in_generate)
    scores: tuple[torch.Tensor, ...] | None = () if is_dict and config.output_scores else None
    raw: tuple[torch.Tensor, ...] | None = () if is_dict and config.output_logits else None
    unfinished = torch.ones(len(input_ids), dtype=torch.long, device=input_ids.device)
    with closing(rows), rows:
        while True:
            logits = torch.from_numpy(rows.logits()).to(input_ids.device, copy=True)
            processed = logits_processor(input_ids, logits)
            if scores is not None:
                scores += (processed,)
            if raw is not None:
                raw += (logits,)
            if config.do_sample:
                probabilities = torch.nn.functional.softmax(processed, dim=-1)
                tokens = torch.multinomial(probabilities, num_samples=1).squeeze(1)
            else:
                tokens = torch.argmax(processed, dim=-1)
            if pads:
                tokens = tokens * unfinished + pad_token * (1 - unfinished)
            input_ids = torch.cat([input_ids, tokens[:, None]], dim=-1)
            unfinished = unfinished & ~stopping_criteria(input_ids, scores)
            if streamer is not None:
                streamer.put(tokens.cpu())
            if not unfinished.any():
                break
            # In transformers rows that have ended go on with padding, which their scores show.
            if pads and scores is None and raw is None:
                for row in torch.nonzero(unfinished == 0).flatten().tolist():
                    rows.end(row)
            rows.extend(tokens.tolist())
    if streamer is not None:
        streamer.end()
    if not is_dict:
        return input_ids
    return GenerateDecoderOnlyOutput(sequences=input_ids, scores=scores, logits=raw)


def _check_positions(position_ids: torch.Tensor | None, starts: list[int], length: int) -> None:
    """Raise an error unless the positions are those of tokens that follow one another."""
    if position_ids is None:
        return
    places = torch.arange(length, device=position_ids.device)
    begins = torch.tensor(starts, device=position_ids.device)[:, None]
    if not torch.equal((places - begins).clamp(min=0), position_ids.expand(len(starts), -1)):
        raise RefusedSettingError(
            "position_ids= is refused: in the kernel the tokens of a row have the positions from 0 "
            "on, without gaps; leave it out",
            "position_ids",
        )


def _is(criterion: StoppingCriteria, *classes: type) -> bool:
    """Return whether a criterion is of a class that the kernel knows, and of no subclass."""
    return type(criterion) in classes


def _pads(criteria: Sequence[StoppingCriteria]) -> bool:
    """Return whether rows that have ended are padded; else transformers lets them go on."""
    return any(hasattr(each, "eos_token_id") for each in criteria)


def _end_tokens(criteria: Sequence[StoppingCriteria]) -> list[int]:
    """Return the tokens that end a row, by criteria that the kernel knows."""
    found = [each.eos_token_id for each in criteria if _is(each, EosTokenCriteria)]
    return [token for tokens in found for token in tokens.flatten().tolist()]


def _seeds(count: int, samples: bool) -> list[int]:
    """Return a seed for each row, drawn from torch's generator where tokens are."""
    return torch.randint(2**63 - 1, (count,)).tolist() if samples else [0] * count


def _joined(input_ids: torch.Tensor, columns: list[list[int]]) -> torch.Tensor:
    new = torch.tensor(columns, dtype=input_ids.dtype, device=input_ids.device).T
    return torch.cat([input_ids, new.reshape(len(input_ids), -1)], dim=-1)
