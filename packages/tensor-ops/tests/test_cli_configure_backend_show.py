"""The lines of ``tensor-ops configure_backend --show`` on the environment and the file's order."""

import pytest
from shown_configuration import DEFAULT_ORDER, shown

from tensor_ops import ConfigError, config
from tensor_ops.__main__ import main
from tensor_ops.config import state
from tensor_ops.config.location import ENV_CONFIG


@pytest.mark.parametrize(
    ("name", "value", "is_shown"),
    [
        (ENV_CONFIG, "gone.json", False),
        (config.ENV_PREFERRED, "nonsense", True),
        (config.ENV_FORCE, "auto", True),
        (config.ENV_PRIORITY, "cpp,cpp", True),
    ],
)
def test_show_fails_as_the_import_does(
    config_file, tmp_path, capsys, monkeypatch, name, value, is_shown
):
    monkeypatch.chdir(tmp_path)
    assert main(["configure_backend", "--backend=python"]) == 0
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as raised:
        state.start()
    capsys.readouterr()
    assert main(["configure_backend", "--show"]) == 1
    out, err = capsys.readouterr()
    assert err == f"tensor-ops: error: {raised.value}\n"
    settings = shown(config_file, "python").partition("\n\nThe entries")[0]
    assert out.startswith(settings) if is_shown else out == ""


def test_show_tells_the_built_in_order_from_the_same_in_the_file(config_file, capsys):
    assert main(["configure_backend", f"--priority={','.join(DEFAULT_ORDER)}"]) == 0
    capsys.readouterr()
    assert main(["configure_backend", "--show"]) == 0
    notes = "The file has this order, which is the built-in one; --priority=auto takes it out.\n"
    assert capsys.readouterr().out == shown(config_file, notes=notes)
    assert main(["configure_backend", "--priority=auto"]) == 0
    capsys.readouterr()
    assert main(["configure_backend", "--show"]) == 0
    assert capsys.readouterr().out == shown(config_file)
