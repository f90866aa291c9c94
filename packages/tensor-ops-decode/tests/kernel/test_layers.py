"""Programs described layer by layer: what they compute, and what is refused with which words."""

import ml_dtypes
import numpy as np
import pytest

from tensor_ops import PersistentKernel
from tensor_ops_decode import ProgramError
from tensor_ops_decode.kernel.layers import KernelTensor

TOKENS, REQUESTS, HIDDEN, VOCABULARY = 4, 2, 8, 11


class Kernel(PersistentKernel):
    """A small kernel with short ways to its tensors."""

    def __init__(self, backend="python", **arguments):
        limits = {
            "max_num_batched_tokens": TOKENS,
            "max_num_batched_requests": REQUESTS,
            "max_seq_length": 32,
        }
        super().__init__(backend=backend, **limits, **arguments)
        self.random, self.arrays = np.random.default_rng(1), {}

    def weight(self, name, *shape, dtype=np.float32):
        values = self.random.standard_normal(shape, np.float32).astype(dtype)
        self.arrays[name] = values
        return self.attach_input(values, name=name)

    def value(self, name, columns, rows=TOKENS, dtype="float32"):
        return self.new_tensor((rows, columns), dtype, name=name)

    def embedded(self):
        self.table = self.weight("table", VOCABULARY, HIDDEN)
        return self.embed_layer(weight=self.table, output=self.value("x", HIDDEN))

    def finish(self, x):
        """Add the end of the program, and compile it."""
        logits = self.value("logits", VOCABULARY)
        self.linear_layer(input=x, weight=self.table, output=logits)
        self.argmax_layer(input=logits, output=self.value("next", 1, dtype="int32"))
        self.compile()
        return self


def attend(kernel, **settings):
    """Add an attention layer to a kernel's embedding, and return its output."""
    x = kernel.embedded()
    matrices = [kernel.weight(name, rows, HIDDEN) for name, rows in (("q", 8), ("k", 4), ("v", 4))]
    qkv = kernel.linear_layer(input=x, weight=matrices, output=kernel.value("qkv", 16))
    layer = settings.pop("layer", kernel.paged_attention_layer)
    return layer(input=qkv, output=kernel.value("y", 8), num_heads=2, num_kv_heads=1, **settings)


def generated(kernel, *prompts):
    requests = [kernel.add_request(prompt, max_new_tokens=4) for prompt in prompts]
    while kernel.requests:
        kernel()
    return [kernel.tokens(request) for request in requests]


def test_a_program_by_hand_computes_what_numpy_does(runner):
    kernel = Kernel(runner)
    x = kernel.embedded()
    norm, weight = kernel.weight("norm", HIDDEN), kernel.weight("w", 6, HIDDEN)
    down, bias = kernel.weight("down", HIDDEN, 3), kernel.weight("bias", HIDDEN)
    arrays = kernel.arrays
    mid = kernel.rmsnorm_linear_layer(
        input=x, weight_norm=norm, weight_linear=weight, output=kernel.value("mid", 6), eps=0.1
    )
    y = kernel.silu_mul_linear_with_residual_layer(
        input=mid, weight=down, bias=bias, residual=x, output=kernel.value("y", HIDDEN)
    )
    kernel.finish(y)
    request = kernel.add_request([3, 5])
    kernel()
    x = arrays["table"][5].astype(np.float64)
    mid = arrays["w"] @ (x / np.sqrt(np.mean(x**2) + 0.1) * arrays["norm"])
    gate, up = np.split(mid, 2)
    y = arrays["down"] @ (gate / (1 + np.exp(-gate)) * up) + arrays["bias"] + x
    np.testing.assert_allclose(kernel.logits(request), arrays["table"] @ y, rtol=1e-5, atol=1e-5)
    assert kernel.tokens(request) == [np.argmax(arrays["table"] @ y)]


def test_every_elementwise_layer_has_its_place(runner):
    kernel = Kernel(runner)
    x = kernel.embedded()
    gelu = kernel.gelu_mul_layer(input=x, output=kernel.value("gelu", 4))
    silu = kernel.silu_mul_layer(input=x, output=kernel.value("silu", 4))
    both = kernel.elementwise_add_layer(input_a=gelu, input_b=silu, output=kernel.value("sum", 4))
    reduced = kernel.allreduce_layer(input=both, output=kernel.value("reduced", 4))
    wide = kernel.linear_with_residual_layer(
        input=reduced,
        weight=kernel.weight("up", HIDDEN, 4),
        residual=x,
        output=kernel.value("wide", HIDDEN),
    )
    normed = kernel.rmsnorm_layer(
        input=wide, weight=kernel.weight("norm", HIDDEN), output=kernel.value("normed", HIDDEN)
    )
    kernel.finish(normed)
    kinds = [node.kind for node in kernel.program.nodes]
    assert kinds == [
        *("embed", "gelu_mul", "silu_mul", "add", "allreduce", "linear", "add", "rms_norm"),
        *("linear", "argmax"),
    ]
    assert kernel()


def test_paged_and_contiguous_attention_agree(runner):
    paged, contiguous = Kernel(runner, page_size=2), Kernel(runner)
    prompts = [1, 2, 3, 4, 5], [7, 8]
    answers = generated(paged.finish(attend(paged)), *prompts)
    layer = contiguous.attention_layer
    assert generated(contiguous.finish(attend(contiguous, layer=layer)), *prompts) == answers
    assert [cache.paged for cache in paged.program.caches.values()] == [True]
    assert [cache.paged for cache in contiguous.program.caches.values()] == [False]


def test_rotary_tables_and_norms_are_weights_of_attention(runner):
    kernel = Kernel(runner)
    angles = np.outer(np.arange(32), [1.0, 0.1])
    tables = {
        "cos_pos_embed": kernel.attach_input(np.cos(angles).astype(np.float32), name="cos"),
        "sin_pos_embed": kernel.attach_input(np.sin(angles).astype(np.float32), name="sin"),
        "q_norm": kernel.weight("q_norm", 4),
        "k_norm": kernel.weight("k_norm", 4),
    }
    kernel.finish(attend(kernel, window=2, soft_cap=3.0, rotation="interleaved", **tables))
    node = next(node for node in kernel.program.nodes if node.kind == "attention")
    assert set(node.weights) == {"cos", "sin", "q_norm", "k_norm"}
    assert (node.attributes["head_size"], node.attributes["scale"]) == (4, 0.5)
    assert generated(kernel, [1, 2, 3])


def test_select_leaves_one_row_for_each_request(runner):
    kernel = Kernel(runner)
    x = kernel.embedded()
    last = kernel.select_layer(input=x, output=kernel.value("last", HIDDEN, rows=REQUESTS))
    logits = kernel.value("logits", VOCABULARY, rows=REQUESTS)
    kernel.linear_layer(input=last, weight=kernel.table, output=logits)
    kernel.argmax_layer(input=logits, output=kernel.value("next", 1, REQUESTS, "int32"))
    kernel.compile()
    other = Kernel(runner)
    other.finish(other.embedded())
    assert generated(kernel, [1, 2, 3], [4]) == generated(other, [1, 2, 3], [4])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_weights_of_half_types_have_a_half_cache(dtype):
    kernel = Kernel()
    half = kernel.attach_input(np.zeros((HIDDEN, 8), dtype), name="half")
    y = kernel.value("half of y", HIDDEN)
    kernel.finish(kernel.linear_layer(input=attend(kernel), weight=half, output=y))
    assert kernel.program.caches["y.cache"].dtype == "float16"
    assert kernel.program.tensors["half"].type in ("f16", "bf16")


def test_tensors_of_pytorch_are_not_copied():
    torch = pytest.importorskip("torch")
    weight, kernel = torch.nn.Parameter(torch.ones(8, HIDDEN, dtype=torch.bfloat16)), Kernel()
    x, y = kernel.embedded(), kernel.value("y", HIDDEN)
    with torch.no_grad():
        attached = kernel.attach_input(weight, name="w")
        weight.zero_()
    kernel.finish(kernel.linear_layer(input=x, weight=attached, output=y))
    assert generated(kernel, [1]) == [[0] * 4]


@pytest.mark.parametrize(
    ("array", "error", "words"),
    [
        ([1.0], TypeError, "attach_input: w must be an array, got builtins.list"),
        (np.zeros(2), TypeError, "w must be of float32, float16, bfloat16, got float64"),
        (np.zeros((1, 1, 1), "f4"), ValueError, "must be a vector or a matrix, got the shape"),
        (np.zeros((0, 3), "f4"), ValueError, "must be a vector or a matrix, got the shape"),
        (np.zeros((4, 4), "f4")[:, ::2], ValueError, "w must be C-contiguous"),
    ],
)
def test_arrays_that_are_no_weights(array, error, words):
    with pytest.raises(error, match=words):
        Kernel().attach_input(array, name="w")


def test_a_layer_that_does_not_fit_is_named_and_leaves_the_program_as_it_was():
    kernel = Kernel()
    x = kernel.embedded()
    wrong = kernel.weight("wrong", 5, HIDDEN + 1)
    y = kernel.value("y", HIDDEN)
    with pytest.raises(ProgramError, match="linear 'y': the columns of weight must be 8, got 9"):
        kernel.linear_layer(input=x, weight=wrong, output=y)
    with pytest.raises(ProgramError, match=r"linear 'y': .*\(4, 11, 'float32'\), declared are"):
        kernel.linear_layer(input=x, weight=kernel.table, output=y)
    square = kernel.weight("square", HIDDEN, HIDDEN)
    kernel.linear_layer(input=x, weight=square, output=y)
    with pytest.raises(ProgramError, match="tensor 'wrong' is used by no layer"):
        kernel.finish(y)


def test_a_layer_of_several_nodes_that_does_not_fit_leaves_none_of_them():
    kernel = Kernel()
    x, y, z = kernel.embedded(), kernel.value("y", HIDDEN), kernel.value("z", HIDDEN)
    slim, wide = kernel.weight("slim", 6, HIDDEN), kernel.weight("wide", HIDDEN, 6)
    down, norm = kernel.weight("down", HIDDEN, 3), kernel.weight("norm", 6)
    narrow = kernel.linear_layer(input=x, weight=slim, output=kernel.value("narrow", 6))
    add, gated = kernel.linear_with_residual_layer, kernel.silu_mul_linear_with_residual_layer
    normed = kernel.rmsnorm_linear_layer
    with pytest.raises(ProgramError, match=r"linear 'y': residual must .*\(4, 8\), got \(4, 6\)"):
        add(input=narrow, weight=wide, residual=narrow, output=y)
    with pytest.raises(ProgramError, match=r"linear 'y\.product': the columns of weight must be 3"):
        gated(input=narrow, weight=wide, residual=x, output=y)
    with pytest.raises(ProgramError, match=r"'y\.product': .*\(4, 6, 'float32'\), declared are"):
        add(input=x, weight=slim, residual=x, output=y)
    with pytest.raises(ProgramError, match="linear 'y': the columns of weight must be 6, got 3"):
        normed(input=narrow, weight_norm=norm, weight_linear=down, output=y)
    normed(input=narrow, weight_norm=norm, weight_linear=wide, output=z)
    gated(input=narrow, weight=down, residual=z, output=y)
    names = [node.name for node in kernel.finish(y).program.nodes]
    assert names[2:-2] == ["z.norm", "z", "y.hidden", "y.product", "y"]


def test_values_within_a_layer_leave_all_names_to_the_caller():
    kernel = Kernel()
    x, layer = kernel.embedded(), kernel.linear_with_residual_layer
    square = kernel.weight("square", HIDDEN, HIDDEN)
    before, y = kernel.value("z.product", HIDDEN), kernel.value("y", HIDDEN)
    layer(input=x, weight=square, residual=x, output=y)
    later = kernel.weight("y.product", HIDDEN, HIDDEN)
    layer(input=y, weight=later, residual=x, output=before)
    kernel.finish(layer(input=before, weight=square, residual=y, output=kernel.value("z", HIDDEN)))
    expected = ["y.product'", "y", "z.product.product", "z.product", "z.product'", "z"]
    assert [node.name for node in kernel.program.nodes][1:7] == expected


def test_attention_that_does_not_fit_can_be_added_again():
    kernel = Kernel()
    short = kernel.weight("short", 31, 2)
    with pytest.raises(ProgramError, match="'short' must have a row for each of the 32 positions"):
        attend(kernel, cos_pos_embed=short, sin_pos_embed=short)
    qkv, y = KernelTensor("qkv", (TOKENS, 16), "float32"), KernelTensor("y", (TOKENS, 8), "float32")
    again = kernel.paged_attention_layer
    with pytest.raises(ProgramError, match="num_heads must be a multiple of num_kv_heads"):
        again(input=qkv, output=y, num_heads=2, num_kv_heads=3)
    with pytest.raises(ProgramError, match="attention 'y': input must have a head's size for"):
        again(input=qkv, output=y, num_heads=5, num_kv_heads=1)
    with pytest.raises(ProgramError, match="num_heads must be a positive integer, got 0"):
        again(input=qkv, output=y, num_heads=0, num_kv_heads=1)
    again(input=qkv, output=y, num_heads=2, num_kv_heads=1)


def test_order_is_checked():
    kernel = Kernel()
    table, later = kernel.weight("table", VOCABULARY, HIDDEN), kernel.value("later", HIDDEN)
    with pytest.raises(ProgramError, match="'y': x is 'later', which no layer before writes"):
        kernel.silu_mul_layer(input=later, output=kernel.value("y", 4))
    kernel.embed_layer(weight=table, output=later)
    with pytest.raises(ProgramError, match="embed 'later': a value of this name exists already"):
        kernel.embed_layer(weight=table, output=later)


def test_what_dangles_is_named():
    kernel = Kernel()
    x = kernel.embedded()
    with pytest.raises(ProgramError, match="ends with argmax_layer"):
        kernel.compile()
    unwritten = kernel.value("unwritten", 3)
    with pytest.raises(ProgramError, match="'unwritten' is declared, and no layer writes it"):
        kernel.compile()
    small = kernel.weight("small", 3, HIDDEN)
    kernel.linear_layer(input=x, weight=small, output=unwritten)
    with pytest.raises(ProgramError, match="tensor 'unwritten' is used by no layer"):
        kernel.finish(x)


@pytest.mark.parametrize(
    ("dims", "dtype", "words"),
    [
        ((3, 8), "float32", r"4 \(max_num_batched_tokens\) or 2 \(max_num_batched_requests\) rows"),
        ((4,), "float32", r"dims of y must be \(rows, columns\)"),
        *(
            (dims, "float32", r"rows and at least one column, got ")
            for dims in (4, None, "48", (4, -1), (4, 0), (4, 2.5), (4, True), (4, 8, 1), ("4", "8"))
        ),
        ((4, 8), "nonsense", "y must be float32 or int32, got 'nonsense'"),
        ((4, 8), "float16", "y must be float32 or int32, got float16"),
    ],
)
def test_tensors_that_no_layer_writes(dims, dtype, words):
    with pytest.raises(ProgramError, match=words):
        Kernel().new_tensor(dims, dtype, name="y")


def test_names_are_unique():
    kernel = Kernel()
    kernel.embedded()
    for name in ("table", "x", "tokens", 3):
        with pytest.raises(ProgramError, match="name must be a new one"):
            kernel.weight(name, 2)


def test_an_output_is_a_tensor_of_this_kernel():
    kernel, other = Kernel(), Kernel()
    table = kernel.weight("table", VOCABULARY, HIDDEN)
    for output in (table, other.value("x", HIDDEN)):
        with pytest.raises(ProgramError, match=r"output must be a new_tensor\(\) of this kernel"):
            kernel.embed_layer(weight=table, output=output)


@pytest.mark.parametrize("wrong", ["x", 3, None, np.ones(2)], ids=str)
def test_only_tensors_stand_where_tensors_are_expected(wrong):
    kernel = Kernel()
    x = kernel.embedded()
    norm, square = kernel.weight("norm", HIDDEN), kernel.weight("square", HIDDEN, HIDDEN)
    y = kernel.value("y", HIDDEN)
    weights = {"weight_norm": norm, "weight_linear": square}
    qkv = kernel.linear_layer(
        input=x, weight=kernel.weight("to_qkv", 16, HIDDEN), output=kernel.value("qkv", 16)
    )
    heads = {"num_heads": 2, "num_kv_heads": 1}
    layers = [
        (kernel.rmsnorm_layer, {"input": x, "weight": norm}, ()),
        (kernel.linear_layer, {"input": x, "weight": square}, ["bias"]),
        (kernel.linear_with_residual_layer, {"input": x, "weight": square, "residual": x}, ()),
        (kernel.rmsnorm_linear_layer, {"input": x, **weights}, ["bias"]),
        (kernel.paged_attention_layer, {"input": qkv, **heads}, ["cos_pos_embed", "q_norm"]),
        (kernel.elementwise_add_layer, {"input_a": x, "input_b": x}, ()),
        (kernel.select_layer, {"input": x}, ()),
    ]
    for layer, given, optional in layers:
        names = [name for name, value in given.items() if isinstance(value, KernelTensor)]
        if wrong is not None:  # which leaves out what is optional
            names += optional
        for name in names:
            is_missing = wrong is None and "weight" in name
            says = "is missing" if is_missing else f"'y': {name} must be a tensor that"
            with pytest.raises(ProgramError, match=says):
                layer(output=y, **{**given, name: wrong})
        with pytest.raises(ProgramError, match=r"output must be a new_tensor\(\), got"):
            layer(output=wrong, **given)


def test_tensors_of_another_kernel_are_no_inputs():
    kernel, other = Kernel(), Kernel()
    kernel.embedded()
    y, foreign = kernel.value("y", HIDDEN), other.value("foreign", HIDDEN)
    with pytest.raises(ProgramError, match="input is 'foreign', no tensor of this kernel"):
        kernel.silu_mul_layer(input=foreign, output=y)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda kernel, x: kernel.select_layer(x), r"PersistentKernel\.select_layer\(\) takes 1"),
        (lambda kernel, x: kernel.select_layer(input=x), r"Kernel\.select_layer.*'output'"),
        (lambda kernel, x: kernel.new_tensor((4, 8)), r"PersistentKernel\.new_tensor.*'name'"),
        (lambda kernel, x: kernel.add_request(), r"PersistentKernel\.add_request.*'tokens'"),
        (
            lambda kernel, x: kernel.attention_layer(input=x, output=x, num_heads=2),
            r"PersistentKernel\.attention_layer.*'num_kv_heads'",
        ),
        (
            lambda kernel, x: kernel.paged_attention_layer(
                input=x, output=x, num_heads=2, num_kv_heads=1, softcap=3.0
            ),
            r"^paged_attention_layer\(\) has no argument 'softcap'; did you mean 'soft_cap'\?",
        ),
    ],
)
def test_python_s_own_errors_have_the_names_of_the_kernel(call, words):
    kernel = Kernel()
    x = kernel.embedded()
    with pytest.raises(TypeError, match=words):
        call(kernel, x)


def test_tokens_are_no_input():
    kernel = Kernel()
    table, x = kernel.weight("table", VOCABULARY, HIDDEN), kernel.value("x", HIDDEN)
    with pytest.raises(ProgramError, match=r"give the tokens to add_request\(\)"):
        kernel.embed_layer(input=x, weight=table, output=x)


def test_nothing_is_added_after_the_program_is_compiled():
    kernel = Kernel()
    kernel.finish(kernel.embedded())
    with pytest.raises(ProgramError, match="new_tensor: the kernel is compiled already"):
        kernel.value("y", 3)
    with pytest.raises(ProgramError, match="compile: the kernel is compiled already"):
        kernel.compile()


def test_argmax_has_no_temperature():
    kernel = Kernel()
    kernel.finish(kernel.embedded())
    with pytest.raises(ValueError, match="the program chooses by argmax; temperature must be 0"):
        kernel.add_request([1], temperature=0.5)
