"""Which layers have a window, and its rotation, as transformers' AutoModelForCausalLM reads them.

A setting that no layer uses may be anything, such as the pattern beside a list of layer types.
"""

import itertools
import json

import numpy as np
import pytest

from family_logits import of_the_engine, of_transformers, save
from greedy_models import BOUND

FULL, SLIDING = "full_attention", "sliding_attention"
TYPES = [[FULL] * 3, [SLIDING] * 3, [FULL, SLIDING, FULL], ["attention", SLIDING, SLIDING]]
# Values of the keys that also say something about windows; some cannot be where they are used.
WINDOWS = {
    "Mistral": {"sliding_window": [5, None, 0]},
    "Qwen2": {"sliding_window": [5, 0], "max_window_layers": [2, -1]},
    "Qwen3": {"sliding_window": [5], "max_window_layers": [2, -1]},
    "Gemma2": {"sliding_window": [5, 0]},
    "Gemma3Text": {"sliding_window": [5, 0], "sliding_window_pattern": [2, None, False]},
    "SmolLM3": {"sliding_window": [5], "use_sliding_window": [True, False]},
    "Olmo3": {"sliding_window": [5, 0]},
    "Ministral3": {"sliding_window": [5, None]},
}
BASES = ("rope_theta", "rope_local_base_freq")
ROTATIONS = [
    None,
    {"rope_type": "linear", "factor": 3.0, "rope_theta": 50.0},
    {FULL: {"rope_type": "default", "rope_theta": 50.0}},
    {FULL: {"rope_type": "default"}, SLIDING: {"rope_type": "default", "rope_theta": 60.0}},
]


@pytest.fixture(scope="module", params=["Llama", *WINDOWS])
def saved(request, tmp_path_factory):
    """A family, the folder of a small model, and settings that do not say which layers differ."""
    folder = tmp_path_factory.mktemp(request.param)
    settings = save(request.param, folder)
    of_layers = ("layer_types", "rope_parameters")
    settings = {key: value for key, value in settings.items() if key not in of_layers}
    return request.param, folder, settings


def differences(folder, settings, grid):
    """Return where the engine has other logits than transformers, or none.

    A file that transformers fails at means nothing that could be the same.
    """
    compared, wrong = 0, []
    for changed in grid:
        text = json.dumps(settings | changed)
        (folder / "config.json").write_text(text, encoding="utf-8")
        theirs, ours = of_transformers(folder), of_the_engine(folder)
        if theirs is not None:
            compared += 1
            if isinstance(ours, str) or np.abs(theirs - ours).max() >= BOUND:
                wrong.append((changed, ours))
    assert compared
    return wrong


@pytest.mark.sampled(2, "saved")
def test_listed_types_of_layers_decide_on_windows(saved):
    family, folder, settings = saved
    values = {"layer_types": TYPES} | WINDOWS.get(family, {})
    grid = [dict(zip(values, each, strict=True)) for each in itertools.product(*values.values())]
    assert differences(folder, settings, grid) == []


@pytest.mark.sampled(2, "saved")
def test_a_base_may_be_null_where_no_layer_reads_it(saved):
    _, folder, settings = saved
    grid = [
        {base: None, "rope_parameters": rotation, "layer_types": types}
        for base, rotation, types in itertools.product(BASES, ROTATIONS, TYPES[:2])
    ]
    assert differences(folder, settings, grid) == []
