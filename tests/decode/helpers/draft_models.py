"""Small models with a layer that guesses tokens, and its guesses by the modules of transformers."""

import copy
from types import SimpleNamespace

import torch
from safetensors.torch import load_file, save_file

from gguf_models import write_gguf
from greedy_models import expected
from small_families import small_model

# How much of what layers add is left: the next token depends on the last one above all, so that
# a layer that has never been trained guesses some.
KEPT = 0.1


class TorchDraft(torch.nn.Module):
    """Guesses tokens by a layer like one of the model's with attention."""

    def __init__(self, model):
        super().__init__()
        config, core = model.config, model.model
        hidden = config.hidden_size
        full = [i for i, layer in enumerate(core.layers) if hasattr(layer, "self_attn")][-1]
        norm = type(core.norm)
        self.fc = torch.nn.Linear(2 * hidden, hidden, bias=False)
        self.pre_fc_norm_embedding = norm(hidden, eps=config.rms_norm_eps)
        self.pre_fc_norm_hidden = norm(hidden, eps=config.rms_norm_eps)
        self.layers = torch.nn.ModuleList([type(core.layers[full])(config, full)])
        self.norm = norm(hidden, eps=config.rms_norm_eps)
        self._model = [model]  # which is no part of it

    def guess(self, tokens, hidden, count, words=None):
        """Return guesses of what follows tokens, from what the model says of all but the last.

        They are among the first words, or among all.
        """
        model, following, guesses = self._model[0], [*tokens[1:]], []
        while len(guesses) < count:
            embedded = model.get_input_embeddings()(torch.tensor([following]))
            both = [self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(hidden)]
            x = self.fc(torch.cat(both, dim=-1))
            positions = torch.arange(len(following))[None]
            x = self.layers[0](
                x,
                position_embeddings=model.model.rotary_emb(x, positions),
                attention_mask=torch.full((1, 1, len(following), len(following)), -1e30).triu(1),
                position_ids=positions,
            )
            x = self.norm(x[0] if isinstance(x, tuple) else x)[:, -1:]
            guesses.append(int(model.lm_head(x)[0, -1, :words].argmax()))
            following.append(guesses[-1])
            hidden = torch.cat([hidden, x], dim=1)
        return guesses


@torch.no_grad()
def model_with_draft(family, folder, **changed):
    """Write a small model with a draft, in the names of its family; return both as modules."""
    model = small_model(family, **changed)
    torch.manual_seed(5)
    draft = TorchDraft(model)
    for parameter in draft.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    draft.fc.weight[:, : model.config.hidden_size] += torch.eye(model.config.hidden_size)
    for module in (model, draft):
        for name, parameter in module.named_parameters():
            if any(part in name for part in ("o_proj", "out_proj", "down_proj")):
                parameter.mul_(KEPT)
            elif "norm" in name and module is draft:
                torch.nn.init.normal_(parameter, mean=0.05, std=0.05)
    model.save_pretrained(folder)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    given = {f"mtp.{name}": each.clone() for name, each in draft.state_dict().items()}
    if not family.startswith("Qwen"):
        given = {name: each.clone() for name, each in tensors_of_layer(model, draft).items()}
    save_file(tensors | given, path, {"format": "pt"})
    return model, draft


def tensors_of_layer(model, draft):
    """Return the tensors of a draft by the names of a layer behind the last."""
    names = {
        "fc": "eh_proj",
        "pre_fc_norm_embedding": "enorm",
        "pre_fc_norm_hidden": "hnorm",
        "norm": "shared_head.norm",
    }
    found = {}
    for name, tensor in draft.state_dict().items():
        part, _, rest = name.partition(".")
        inner = rest.removeprefix("0.") if part == "layers" else f"{names[part]}.{rest}"
        found[f"model.layers.{model.config.num_hidden_layers}.{inner}"] = tensor
    return found


def write_gguf_with_draft(model, draft, path):
    """Write both as llama.cpp's converter does: the draft is one layer more."""
    tensors = model.state_dict() | tensors_of_layer(model, draft)
    config = copy.copy(model.config)
    config.num_hidden_layers += 1
    config.num_layers_of_draft = 1
    write_gguf(SimpleNamespace(config=config, state_dict=lambda: tensors), path)


@torch.no_grad()
def expected_answer(model, draft, prompt, count, num_guesses, words=None):
    """Return the greedy tokens after a prompt, and how many of them steps accept as guesses."""
    answer, _ = expected(model, prompt, count)
    whole, accepted = [*prompt, *answer], 0
    known = len(prompt) + 1
    hidden = model.model(torch.tensor([whole])).last_hidden_state
    while known < len(whole):
        most = min(num_guesses, len(whole) - known - 1)
        seen = whole[:known], hidden[:, : known - 1]
        guesses = draft.guess(*seen, most, words) if most else []
        right = 0
        while right < most and guesses[right] == whole[known + right]:
            right += 1
        accepted += right
        known += right + 1
    return answer, accepted
