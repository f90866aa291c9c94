"""Nodes that exchange values among ranks, between two launches."""

import textwrap
from pathlib import Path

import numpy as np
import pytest
from largest_errors import SUMS_BOUND, check_errors
from random_llama import Llama, answers, check_answers, fill
from small_programs import COLUMNS, WORDS, Assembly, outputs

import tensor_ops_cuda
from tensor_ops_decode import reference
from tensor_ops_decode import shard as divided
from tensor_ops_decode.errors import RankError
from tensor_ops_decode.executors.sources import TensorArrays
from thread_ranks import Shared, at_once

pytestmark = pytest.mark.usefixtures("device")

HERE = Path(__file__).parent


def shard(rank, world_size, chooser="argmax"):
    """Return a program and its tensors: a product of each rank, added up; and logits of all."""
    made = Assembly(seed=1)
    made.draw = np.random.default_rng([2, rank])
    made.linear("part", "x")
    made.add("allreduce", "sum", {"x": "part"})
    made.add("add", "y", {"a": "sum", "b": "x"})
    made.select("s", "y")
    begin, end = (WORDS * each // world_size for each in (rank, rank + 1))
    made.linear("logits of a rank", "s", made.matrix("head", end - begin))
    made.add("allgather", "logits", {"x": "logits of a rank"}, {"num_columns": WORDS})
    made.add(chooser, "next", {"x": "logits"})
    return made.builder.program(["sum", "logits", "next"]), made.tensors


def without_errors(found):
    """Return what ranks have returned; raise what one has raised."""
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return found


def results(executor, all_shards, shared, **given):
    found = at_once(
        lambda ranks: outputs(executor, *all_shards[ranks.rank], ranks=ranks, **given),
        shared.ranks(),
    )
    return without_errors(found)


@pytest.mark.parametrize("has_window", [True, False], ids=["window", "exchange"])
@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_have_the_same_results_which_are_right(world_size, has_window):
    all_shards = [shard(rank, world_size) for rank in range(world_size)]
    shared = Shared(world_size, has_window=has_window)
    found = results(tensor_ops_cuda, all_shards, shared, num_workers=2)
    right = results(reference, all_shards, Shared(world_size), options={"dtype": "float64"})[0]
    check_errors(found[0], right, SUMS_BOUND)
    for rank in range(1, world_size):
        for own, first in zip(found[rank], found[0], strict=True):
            assert np.array_equal(own, first)


def of_ranks(model, use, world_size=2):
    """Return what a function makes of the shard and the executable of each rank of a model."""
    program, tensors = model

    def run(ranks):
        part = divided(program, ranks.rank, world_size)
        arrays = TensorArrays(part, tensors)
        made = tensor_ops_cuda.compile_program(part.to_json(), arrays, num_workers=2, ranks=ranks)
        found = use(part, made)
        made.close()
        return found

    return without_errors(at_once(run, Shared(world_size).ranks()))


@pytest.mark.parametrize("early", [True, False], ids=["before the last MLP", "behind the layers"])
def test_ranks_divide_a_model(early):
    """Nothing is selected of the first of three groups of tokens, which two prompts take."""
    llama = Llama("bf16", cache="float32", vocabulary=91, selects_early=early)
    program, tensors = model = llama.program()
    prompts = np.random.default_rng(3).integers(0, llama.vocabulary, (2, 11)).tolist()
    found = of_ranks(model, lambda _, executable: answers(executable, prompts))
    right = answers(reference.compile_program(program.to_json(), tensors), prompts)
    for of_rank in found:
        check_answers(of_rank, right, SUMS_BOUND)


def test_ranks_find_the_nan_of_selected_rows():
    _, tensors = model = Llama("bf16", layers=1).program()
    tensors["0.up"].reshape(-1)[-3] = 0x7FC0  # of the second rank alone

    def first_nan(part, executable):
        fill(executable, range(11), range(11), [0] * 10 + [1], [9])
        executable.run(11, 1)
        found = [executable.first_nan(11, 1, slot) for slot in range(2)]
        return [node if node is None else part.nodes[node].name for node in found]

    assert of_ranks(model, first_nan) == [["0.gate_up", None]] * 2


def test_two_ranks_on_two_devices(python):
    """Each rank's executable is on a device of its own."""
    code = f"""
        import os, sys
        sys.path[:0] = {[str(path) for path in (HERE, HERE.parents[2] / "tests/decode/helpers")]!r}
        import numpy as np
        import tensor_ops_cuda
        from small_programs import WORDS
        from test_decode_cut_nodes import shard
        from thread_ranks import Shared, at_once

        shards, all_ranks = [shard(rank, 2, "sample") for rank in range(2)], Shared(2).ranks()
        made = []
        for (program, tensors), ranks in zip(shards, all_ranks):
            os.environ["TENSOR_OPS_CUDA_DEVICE"] = str(ranks.rank)
            text = program.to_json()
            made.append(
                tensor_ops_cuda.compile_program(text, tensors, num_workers=2, ranks=ranks)
            )

        def run(ranks):
            executable = made[ranks.rank]
            arrays = executable.arrays
            arrays["tokens"][0], arrays["page_table"][0] = 3, np.arange(10)
            chosen = executable.run_steps(1, 5, "next", [[]])
            assert executable.profile(1, 1)["work"].shape == (1, len(shards[0][0].nodes))
            assert executable.first_nan(1, 1, 0) is None
            arrays["temperature"][0], arrays["seed"][0], arrays["top_k"][0] = 0.9, 7, 20
            executable.run(1, 1)
            return chosen.tolist(), arrays["next"].tolist(), arrays["logits"].tobytes()

        found = at_once(run, all_ranks)
        assert found[0] == found[1], found
        assert len(found[0][0]) == 5
        print("the same")
    """
    environment = {"TENSOR_OPS_EMULATED_DEVICES": "2"}
    assert python(textwrap.dedent(code), **environment).strip() == "the same"


def test_an_exchange_that_fails_ends_the_steps():
    all_ranks = Shared(2, deadline=0.2).ranks()
    made = [
        tensor_ops_cuda.compile_program(
            (each := shard(rank, 2))[0].to_json(), each[1], num_workers=1, ranks=all_ranks[rank]
        )
        for rank in range(2)
    ]
    with pytest.raises(RankError, match=r"ranks \(1,\) do not come"):
        made[0].run(1, 1)
    with pytest.raises(RuntimeError, match="an earlier step failed: RankError: ranks"):
        made[0].run(1, 1)
    with pytest.raises(RankError, match="rank 0 has failed: RankError: ranks"):
        made[1].run(1, 1)
    for each in made:
        each.close()


def test_a_rank_that_closes_is_not_waited_for():
    all_ranks = Shared(2).ranks()
    made = [
        tensor_ops_cuda.compile_program(
            (each := shard(rank, 2))[0].to_json(), each[1], num_workers=1, ranks=all_ranks[rank]
        )
        for rank in range(2)
    ]
    made[1].close()
    with pytest.raises(RankError, match="rank 1 has closed its executable"):
        made[0].run(1, 1)


def test_the_memory_of_exchanges_is_counted():
    program, tensors = shard(0, 2)
    ranks = Shared(2).ranks()[0]
    made = tensor_ops_cuda.compile_program(program.to_json(), tensors, num_workers=1, ranks=ranks)
    found = tensor_ops_cuda.program_memory(program.to_json(), num_workers=1, ranks=ranks)
    assert made.memory == found
    # Vectors of the eight tokens that run together: one that is sent, and one of each rank.
    assert found["exchange"] >= 3 * 8 * COLUMNS * 4


def test_a_program_that_is_not_the_shard_of_its_rank_is_refused():
    program, tensors = shard(0, 3)
    with pytest.raises(ValueError, match=r"^allgather 'logits': x must have 15 columns on rank 0 "):
        tensor_ops_cuda.compile_program(program.to_json(), tensors, ranks=Shared(2).ranks()[0])


def test_gathered_logits_are_chosen_from_on_one_rank_too():
    program, tensors = shard(0, 1)
    found = outputs(tensor_ops_cuda, program, tensors, num_workers=2)
    right = outputs(reference, program, tensors, options={"dtype": "float64"})
    check_errors(found, right, SUMS_BOUND)
