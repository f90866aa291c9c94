"""What sentence_transformers has beside a model."""

import json

__all__ = ["write_settings"]


def write_settings(folder, modules=("Transformer", "Pooling", "Normalize"), pooling=None, **config):
    """Write what sentence_transformers has beside a model."""
    listed = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": f"st.models.{kind}"}
        for i, kind in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    given = {"pooling_mode_lasttoken": True, "pooling_mode_mean_tokens": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling or given))
    if config:
        (folder / "config_sentence_transformers.json").write_text(json.dumps(config))
