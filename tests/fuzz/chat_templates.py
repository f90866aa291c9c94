"""Chat templates of any kind: a text or a ChatTemplateError, within the budgets of the sandbox."""

from unittest import mock

from choices import Choices

from tensor_ops_decode.text import template_sandbox
from tensor_ops_decode.text.chat_template import ChatTemplate, ChatTemplateError

__all__ = ["try_input"]

# A hundredth of what a rendering may take, so that many are tried; what goes past it is found.
BUDGETS = {"MAX_STEPS": 3_000, "MAX_WEIGHT": 1_280_000, "MAX_LENGTH": 160_000}
OPTIONS = ["-max_len=400", "-timeout=10", "-rss_limit_mb=1000"]

NAMES = [
    "messages", "m", "x", "y", "ns", "loop", "tools", "bos_token", "self", "caller", "varargs",
    "namespace", "range", "dict", "cycler", "joiner", "raise_exception", "strftime_now", "f",
    "none",
]  # fmt: skip
ATTRIBUTES = [
    "role", "content", "x", "y", "items", "keys", "values", "get", "index", "count", "join",
    "split", "strip", "replace", "format", "format_map", "center", "ljust", "zfill", "upper",
    "title", "splitlines", "partition", "removeprefix", "startswith", "encode", "translate",
    "expandtabs", "append", "pop", "update", "copy", "fromkeys", "next", "reset", "current",
    "previtem", "cycle", "changed", "index0", "last", "depth", "b", "to_bytes", "real", "hex",
    "bit_length", "__class__", "__init__", "mro", "gi_frame", "func_globals", "name", "arguments",
    "_x", "__globals__",
]  # fmt: skip
FILTERS = [*sorted(template_sandbox.BoundedEnvironment([], {}, {}).filters), "tojson"]
TESTS = sorted(template_sandbox.BoundedEnvironment([], {}, {}).tests)
CONSTANTS = [
    "''", "'a'", "0", "1", "-1", "2", "10", "99999", "1000000000", "1.5", "1e308", "true", "[]",
    "{}", "'%s'", "'%999999d'", "'{0:99999}'", "'{0.x}'", "'%*d'", "'\\n'", "'<b>'", "'é🙂'",
    "'x' * 9999", "'content'", "'%Y'", "(1,)", "[[1, 2], [3]]", "{'a': 1}", "range(999)",
    "''.join", "2 ** 64",
]  # fmt: skip
OPERATORS = [
    "+",
    "~",
    "*",
    "-",
    "/",
    "//",
    "%",
    "**",
    "==",
    "!=",
    "<",
    ">=",
    "in",
    "not in",
    "and",
    "or",
]
MESSAGES = [
    [{"role": "user", "content": "Hi"}],
    [],
    [{"role": "system", "content": "S"}, {"role": "user", "content": "a" * 500}] * 4,
    [{"role": "assistant", "content": None, "tool_calls": [{"function": {"arguments": {}}}]}],
    [[[[[1.5, None, True]]]], "text", {"": {"": ""}}],
]
NO_JSON = object()
TEMPLATES = [
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set x = messages[0].content %}"
    "{% set messages = messages[1:] %}{% endif %}{{ raise_exception('no') if not x }}",
    "{%- macro f(m) -%}{{ m | tojson(indent=2) }}{%- endmacro -%}{%- set ns = namespace(x=1) -%}"
    "{%- for m in messages -%}{%- set ns.x = ns.x + 1 -%}{{ f(m) }}{%- endfor -%}",
    "{% for m in messages recursive %}{{ loop.index }}{{ loop(m) if m is iterable }}{% endfor %}",
    "{% set x %}{{ 'a' * 99 }}{% endset %}{% generation %}{{ x | trim }}{% endgeneration %}",
]  # fmt: skip
SEEDS = [b"\0" + template.encode() for template in TEMPLATES] + [bytes(range(256)), b"\1" * 99]
DICTIONARY = [
    "{%", "%}", "{{", "}}", "{#", "for m in messages", "endfor", "if", "endif", "set ns.x = ",
    "endset", "macro f(x)", "endmacro", "call f(1)", "endcall", "recursive", "break", "continue",
    "namespace(", "| join", "| map(", "loop(", "self.b()", "block b", "endblock", "is defined",
    "filter upper", "endfilter", "include", "import", "extends", "__class__", "range(99999)",
    "* 99999", "** 99",
]  # fmt: skip


def try_input(data):
    choices = Choices(data)
    if choices.byte() % 2 == 0:
        messages = choices.pick(MESSAGES)
        source = choices.rest().decode(errors="replace")
    else:
        messages = choices.pick(MESSAGES) if not choices.rarely() else [NO_JSON]
        source = _body(choices, 0)
    with mock.patch.multiple(template_sandbox, **BUDGETS):
        error, text = _rendered(source, messages)
    if isinstance(error, ChatTemplateError):
        assert str(error).startswith("the chat template "), error
        assert not isinstance(error.__cause__, MemoryError), source
        return
    if error is not None:
        assert NO_JSON in messages, source
        return
    assert isinstance(text, str)
    assert len(text) <= BUDGETS["MAX_LENGTH"], source


def _rendered(source, messages):
    try:
        template = ChatTemplate(source, {"bos_token": "<s>"})
        return None, template.render(messages, tools=[{"x": 1}])
    except (ChatTemplateError, TypeError) as error:
        return error, None


def _body(choices, depth):
    return "".join(_statement(choices, depth + 1) for _ in range(1 + choices.below(4)))


def _statement(choices, depth):
    def e():
        return _expression(choices, depth + 1)

    def body():
        return _body(choices, depth + 1)

    kinds = [
        lambda: "a",
        lambda: f"{{{{ {e()} }}}}",
        lambda: f"{{% set x = {e()} %}}",
        lambda: f"{{% set ns.x = {e()} %}}",
        lambda: f"{{% set y, x = {e()} %}}",
        lambda: f"{{% for x in {e()} %}}{body()}{{% endfor %}}",
        lambda: f"{{% for x in range(60) %}}{body()}{{% else %}}b{{% endfor %}}",
        lambda: f"{{% for x, y in {e()} if {e()} %}}{body()}{{% break %}}{{% endfor %}}",
        lambda: f"{{% for x in {e()} recursive %}}{body()}{{{{ loop({e()}) }}}}{{% endfor %}}",
        lambda: f"{{% if {e()} %}}{body()}{{% elif {e()} %}}{{% endif %}}",
        lambda: f"{{% set x %}}{body()}{{% endset %}}",
        lambda: f"{{% set ns.x %}}{{{{ ns.x }}}}{body()}{{% endset %}}",
        lambda: f"{{% macro f(x, y={e()}) %}}{body()}{{% endmacro %}}",
        lambda: f"{{% call(x) f({e()}) %}}{body()}{{% endcall %}}",
        lambda: f"{{% filter {choices.pick(FILTERS)} %}}{body()}{{% endfilter %}}",
        lambda: f"{{% set ns = namespace(x={e()}) %}}",
        lambda: f"{{% with x = {e()} %}}{body()}{{% endwith %}}",
        lambda: f"{{% generation %}}{body()}{{% endgeneration %}}",
        lambda: f"{{% block b %}}{body()}{{% endblock %}}",
        lambda: "{% set ns.x = [ns.x, ns.x] %}",
    ]
    return choices.pick(kinds if depth < 6 else kinds[:5])()


def _expression(choices, depth):
    def e():
        return _expression(choices, depth + 1)

    kinds = [
        lambda: choices.pick(NAMES),
        lambda: choices.pick(CONSTANTS),
        lambda: f"{e()}.{choices.pick(ATTRIBUTES)}",
        lambda: f"{e()}.{choices.pick(ATTRIBUTES)}({e()})",
        lambda: f"{e()}.{choices.pick(ATTRIBUTES)}({e()}, {e()})",
        lambda: f"({e()} {choices.pick(OPERATORS)} {e()})",
        lambda: f"{e()}[{e()}]",
        lambda: f"{e()}[{e()}:{e()}]",
        lambda: f"({e()} | {choices.pick(FILTERS)})",
        lambda: f"({e()} | {choices.pick(FILTERS)}({e()}))",
        lambda: f"({e()} | {choices.pick(FILTERS)}({e()}, {e()}))",
        lambda: f"({e()} is {choices.pick(TESTS)})",
        lambda: f"({e()} is {choices.pick(TESTS)}({e()}))",
        lambda: f"{e()}({e()})",
        lambda: f"{choices.pick(NAMES)}(*{e()}, **{e()})",
        lambda: f"[{e()}, {e()}]",
        lambda: f"({e()}, {e()})",
        lambda: f"{{{e()}: {e()}}}",
        lambda: f"({e()} if {e()} else {e()})",
        lambda: f"(-{e()})",
        lambda: f"(not {e()})",
    ]
    return choices.pick(kinds if depth < 9 else kinds[:2])()
