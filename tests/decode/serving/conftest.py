"""A served model, and OpenAI's client for it."""

import pytest

import tensor_ops_decode

pytest.importorskip("openai")
pytest.importorskip("uvicorn")

import openai

from byte_models import save_model
from pooled_folders import write_settings
from running_server import running_server


@pytest.fixture(scope="package")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    save_model(folder, positions=512)
    write_settings(folder)
    options = {"max_num_batched_requests": 4}
    with tensor_ops_decode.load(folder, **options) as model:
        yield model


@pytest.fixture(scope="package")
def address(model):
    with running_server(model, "bytes", limits={"most_waiting": 60}) as address:
        yield address


@pytest.fixture(scope="package")
def client(address):
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
        yield client
