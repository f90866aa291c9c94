"""Environment variables ``TENSOR_OPS_...`` that nothing reads are told, once."""

import json
import warnings

import pytest

import tensor_ops
from tensor_ops.__main__ import main
from tensor_ops.config import variables

FORCE = (
    "TENSOR_OPS_FORCE: no installed package reads this environment variable; "
    "did you mean TENSOR_OPS_FORCE_BACKEND?"
)


@pytest.fixture
def declare(settings, monkeypatch):
    """Install a distribution that names variables; none of its modules can be imported."""
    monkeypatch.syspath_prepend(str(settings.directory))

    def declare(*names):
        metadata = settings.directory / "declaring-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: declaring\nVersion: 1.0\n")
        lines = [f"{name} = no_such_module" for name in names]
        text = "\n".join(["[tensor_ops.variables]", *lines, ""])
        (metadata / "entry_points.txt").write_text(text)

    return declare


@pytest.fixture
def warned(settings, monkeypatch):
    """A function that reloads the configuration and returns what was warned of."""
    monkeypatch.setattr(variables, "warned_of", set())

    def warned():
        with warnings.catch_warnings(record=True) as record:
            warnings.simplefilter("always")
            tensor_ops.reload_config()
        assert all(each.category is tensor_ops.ConfigWarning for each in record)
        assert all(each.filename == __file__ for each in record)
        return [str(each.message) for each in record]

    return warned


def test_the_nearest_name_is_told_once(settings, warned):
    settings.environment(FORCE="cpp")
    assert warned() == [FORCE]
    assert warned() == []
    settings.environment(BACKEND_PRIOTY="cpp")
    (message,) = warned()
    assert message.startswith("TENSOR_OPS_BACKEND_PRIOTY: no installed package reads this")
    assert message.endswith("did you mean TENSOR_OPS_BACKEND_PRIORITY?")


def test_a_name_without_a_near_one_has_all_that_are_read(settings, warned, declare):
    declare("TENSOR_OPS_WIZARD_SPELLS")
    settings.environment(XYZ="1")
    (message,) = warned()
    for name in (*variables.OWN, "TENSOR_OPS_WIZARD_SPELLS"):
        assert name in message
    assert "did you mean" not in message


def test_several_are_one_warning(settings, warned):
    settings.environment(FORCE="cpp", CONFG="x", XYZ="1")
    (message,) = warned()
    assert FORCE in message
    assert "did you mean TENSOR_OPS_CONFIG?" in message


def test_what_is_declared_or_empty_is_no_mistake(settings, warned, declare):
    declare("TENSOR_OPS_WIZARD_DEVICE")
    settings.environment(WIZARD_DEVICE="3", FORCE=" ", BACKEND_PATH="/opt", BACKEND="python")
    assert warned() == []


def test_metadata_is_read_only_where_a_name_is_strange(settings, warned, monkeypatch):
    monkeypatch.setattr(variables.entry_points, "named", None)
    settings.environment(BACKEND="", FORCE_BACKEND="python", BACKEND_PATH="/opt")
    assert variables.unread() == {}


def test_a_filter_that_makes_it_an_error_does_so_each_time(settings, monkeypatch):
    monkeypatch.setattr(variables, "warned_of", set())
    settings.environment(FORCE="cpp")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(tensor_ops.ConfigWarning):
                tensor_ops.reload_config()


def test_the_import_warns_at_the_line_that_imports(processes):
    processes.environment(FORCE="cpp")
    done = processes.run("\n\nimport tensor_ops; tensor_ops.get_backend(); import tensor_ops")
    assert done.returncode == 0
    assert done.stderr == f"<string>:3: ConfigWarning: {FORCE}\n"


def test_no_backend_is_imported_to_know_its_variables(processes):
    processes.environment(OPENCL_DEVICE="0", FORCE="cpp")
    code = "import sys, tensor_ops; print([name for name in sys.modules if 'tensor_ops_' in name])"
    assert processes.run(code).stdout == "[]\n"


def test_doctor_and_show_list_them(settings, capsys):
    settings.environment(FORCE="cpp")
    assert main(["doctor"]) == 0
    assert f"  TENSOR_OPS_FORCE   {FORCE.partition(': ')[2]}\n" in capsys.readouterr().out
    main(["doctor", "--json"])
    found = json.loads(capsys.readouterr().out)["configuration"]["unread_variables"]
    assert found == {"TENSOR_OPS_FORCE": FORCE.partition(": ")[2]}
    main(["configure_backend", "--show"])
    assert f"\n{FORCE}\n" in capsys.readouterr().out
