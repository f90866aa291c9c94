"""Files of checkpoints: what else is in them, and what is left of them when saving fails."""

import os
import pickle
import stat
import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn

from tensor_ops_devices.checkpoint import load_checkpoint, save_checkpoint

posix = pytest.mark.skipif(os.name != "posix", reason="permissions and links are those of POSIX")


def linear(seed):
    torch.manual_seed(seed)
    return nn.Linear(4, 4)


@pytest.fixture(params=["model.pt", "model.safetensors"])
def path(request, tmp_path):
    return tmp_path / request.param


def trained(seed):
    model = linear(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_the_guides_own_file_and_what_else_is_in_it(tmp_path):
    model, optimizer = trained(0)
    checkpoint = {
        "epoch": 7,
        "model_state_dict": {key: value.cpu() for key, value in model.state_dict().items()},
        "optimizer_state_dict": optimizer.state_dict(),
        "losses": [0.5, torch.tensor(0.25)],
    }
    torch.save(checkpoint, tmp_path / "model.pt")
    other, other_optimizer = trained(1)
    rest = load_checkpoint(other, tmp_path / "model.pt")
    assert torch.equal(other.weight, model.weight)
    assert set(rest) == {"epoch", "optimizer_state_dict", "losses"}
    assert (rest["epoch"], rest["losses"]) == (7, [0.5, torch.tensor(0.25)])
    other_optimizer.load_state_dict(rest["optimizer_state_dict"])
    moments = [each.state_dict()["state"][0]["exp_avg"] for each in (optimizer, other_optimizer)]
    assert torch.equal(*moments)


@pytest.mark.parametrize("key", ["model_state_dict", "state_dict", "model"])
def test_where_others_put_the_model(key, tmp_path):
    torch.save({key: linear(0).state_dict(), "epoch": 1}, tmp_path / "model.pt")
    model = linear(1)
    assert load_checkpoint(model, tmp_path / "model.pt") == {"epoch": 1}
    assert torch.equal(model.weight, linear(0).weight)


def test_what_is_saved_with_the_model_comes_back(tmp_path):
    model, optimizer = trained(0)
    extra = {"optimizer_state_dict": optimizer.state_dict(), "epoch": 3}
    save_checkpoint(model, tmp_path / "model.pt", extra)
    assert set(torch.load(tmp_path / "model.pt")) == {"model_state_dict", *extra}
    other, other_optimizer = trained(1)
    rest = load_checkpoint(other, tmp_path / "model.pt")
    other_optimizer.load_state_dict(rest["optimizer_state_dict"])
    assert rest["epoch"] == 3
    for state in (model.state_dict(), other.state_dict()):
        assert torch.equal(state["weight"], model.weight)
    for a, b in zip(optimizer.state.values(), other_optimizer.state.values(), strict=True):
        assert all(torch.equal(a[name], b[name]) for name in a)


def test_extra_that_cannot_go_with_the_model(tmp_path):
    for key in ("model_state_dict", "model"):
        with pytest.raises(ValueError, match=f"extra has '{key}'"):
            save_checkpoint(linear(0), tmp_path / "model.pt", {key: 1})
    with pytest.raises(ValueError, match=r"choose another suffix, as \.pt"):
        save_checkpoint(linear(0), tmp_path / "model.safetensors", {"epoch": 1})
    with pytest.raises(TypeError, match="extra is a Adam, expected a dict"):
        save_checkpoint(linear(0), tmp_path / "model.pt", torch.optim.Adam(linear(0).parameters()))
    with pytest.raises(TypeError, match=r"model is a dict, expected a torch.nn.Module"):
        save_checkpoint({}, tmp_path / "model.pt")
    assert os.listdir(tmp_path) == []


class Unknown:
    """A class that torch.load does not know."""


@pytest.mark.parametrize(
    "value", [lambda: 1, Unknown(), sys.stdout], ids=["lambda", "class", "file"]
)
def test_a_value_that_could_not_be_loaded_is_not_saved(value, tmp_path):
    path = tmp_path / "model.pt"
    save_checkpoint(linear(0), path)
    before = path.read_bytes()
    with pytest.raises(TypeError, match="a checkpoint holds tensors, numbers, strings"):
        save_checkpoint(linear(1), path, {"value": value})
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model.pt"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_what_interrupts_saving_leaves_the_old_file(error, path, monkeypatch):
    save_checkpoint(linear(0), path)
    before = path.read_bytes()

    def interrupted(*args):
        raise error

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises((KeyboardInterrupt, OSError)):
        save_checkpoint(linear(1), path)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_ctrl_c_while_pytorch_writes_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "model.pt"
    save_checkpoint(linear(0), path)
    before = path.read_bytes()

    def interrupted(content, file):
        file.write(b"half of it")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(linear(1), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model.pt"]


@posix
def test_a_full_disk_leaves_the_old_file(path):
    save_checkpoint(linear(0), path)
    before = path.read_bytes()
    # A process of its own, which may write no more than 20,000 bytes to a file.
    code = f"""
    import resource, signal, torch
    from tensor_ops_devices.checkpoint import save_checkpoint
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    try:
        save_checkpoint(torch.nn.Linear(256, 256), {str(path)!r})
    except OSError as error:
        assert {path.name!r} in str(error) and "File too large" in str(error), error
        print("raised")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "raised\n", done.stderr
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


@posix
def test_permissions_and_links_stay(path):
    link = path.with_name("latest" + path.suffix)
    link.symlink_to(path.name)
    save_checkpoint(linear(0), link)  # the file that it names is not there yet
    default = os.umask(0o022)
    os.umask(default)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~default
    path.chmod(0o640)
    save_checkpoint(linear(1), link)
    assert link.is_symlink()
    assert not path.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    model = linear(0)
    load_checkpoint(model, path)
    assert torch.equal(model.weight, linear(1).weight)


@posix
def test_a_file_that_may_not_be_written_stays(path, monkeypatch):
    save_checkpoint(linear(0), path)
    path.chmod(0o444)
    if os.geteuid() == 0:  # who may write any file
        monkeypatch.setattr(os, "access", lambda *args: False)
    with pytest.raises(PermissionError, match=path.name):
        save_checkpoint(linear(1), path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "git lfs pull"),
        (b"<!doctype html><title>Log in</title>", "an HTML page"),
    ],
)
def test_what_stands_in_the_place_of_a_checkpoint_is_named(path, data, message):
    path.write_bytes(data)
    with pytest.raises(RuntimeError, match=rf"{path.name}: .*{message}"):
        load_checkpoint(linear(0), path)


@posix
def test_a_pipe_is_not_waited_for(path):
    os.mkfifo(path)
    with pytest.raises(RuntimeError, match="is a pipe, no regular file"):
        load_checkpoint(linear(0), path)


@posix
def test_what_is_no_file_is_not_replaced(tmp_path):
    with pytest.raises(IsADirectoryError):
        save_checkpoint(linear(0), tmp_path)
    save_checkpoint(linear(0), os.devnull)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    with pytest.raises(FileNotFoundError, match=r"its folder does not exist: .*model.pt"):
        save_checkpoint(linear(0), tmp_path / "none" / "model.pt")


def test_shared_tensors_are_in_the_file_once(path):
    large = nn.Linear(256, 256, bias=False)
    tied = nn.Sequential(large, nn.Linear(256, 256, bias=False))
    tied[1].weight = large.weight
    save_checkpoint(tied, path)
    assert path.stat().st_size < 1.5 * 256 * 256 * 4


def test_views_into_one_memory(path):
    model = nn.Module()
    memory = torch.arange(8.0)
    model.register_buffer("first", memory[:4])
    model.register_buffer("last", memory[4:])
    save_checkpoint(model, path)
    other = nn.Module()
    other.register_buffer("first", torch.zeros(4))
    other.register_buffer("last", torch.zeros(4))
    load_checkpoint(other, path)
    assert torch.equal(torch.cat([other.first, other.last]), memory)


def test_files_that_are_no_checkpoints_are_named(path):
    model = linear(1)
    before = model.weight.clone()
    with pytest.raises(FileNotFoundError, match=path.name):
        load_checkpoint(model, path)
    save_checkpoint(linear(0), path)
    whole = path.read_bytes()
    for content in (b"", b"hello", whole[: len(whole) // 2], whole[:-40]):
        path.write_bytes(content)
        with pytest.raises((RuntimeError, pickle.UnpicklingError), match=path.name):
            load_checkpoint(model, path)
    assert torch.equal(model.weight, before)


def test_what_is_no_state_dict_is_named(tmp_path):
    path = tmp_path / "model.pt"
    for content in (torch.ones(2), [1, 2], {0: torch.ones(2)}):
        torch.save(content, path)
        with pytest.raises(TypeError, match=r"model\.pt' holds a \w+, expected a state dict"):
            load_checkpoint(linear(0), path)


def test_models_without_values(tmp_path):
    path = tmp_path / "model.pt"
    meta = nn.Linear(4, 4, device="meta")
    with pytest.raises(TypeError, match="weight is on the meta device"):
        save_checkpoint(meta, path)
    with pytest.raises(TypeError, match="weight is not initialized; call the model once"):
        save_checkpoint(nn.LazyLinear(4), path)
    save_checkpoint(linear(0), path)
    with pytest.raises(RuntimeError, match=r"meta device.*model.to_empty"):
        load_checkpoint(meta, path)
    lazy = nn.LazyLinear(4)
    load_checkpoint(lazy, path)
    assert torch.equal(lazy.weight, linear(0).weight)


def test_state_that_is_no_tensor(tmp_path):
    class Counting(nn.Module):
        def __init__(self, value):
            super().__init__()
            self.value = value

        def get_extra_state(self):
            return {"value": self.value}

        def set_extra_state(self, state):
            self.value = state["value"]

    model, other = Counting(5), Counting(0)
    save_checkpoint(model, tmp_path / "model.pt")
    load_checkpoint(other, tmp_path / "model.pt")
    assert other.value == 5
    with pytest.raises(TypeError, match="_extra_state is a dict, and safetensors holds tensors"):
        save_checkpoint(model, tmp_path / "model.safetensors")
    with pytest.raises(TypeError, match="PyTorch would not load it"):
        save_checkpoint(Counting(Unknown()), tmp_path / "model.pt")
