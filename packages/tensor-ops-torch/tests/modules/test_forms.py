"""A module is known where its code is that of a form, but for names; a change of it is another."""

import ast
import collections
import functools
import importlib.util
import inspect
import linecache
import re
import textwrap
import types
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 -- as most models have it
import transformers
from lookalike_bases import GemmaNorm, LlamaNorm
from small_models import SwiGLU
from torch import nn

from tensor_ops_torch import swap_modules, swap_report
from tensor_ops_torch.modules import forms
from tensor_ops_torch.modules.forms import FORMS
from tensor_ops_torch.modules.matching import Match, match
from tensor_ops_torch.modules.source import RefusedError

PARAMETERS = {"Weight", "Bias"}
LONGEST = 2500  # characters of a class that could have a form


class Attributes(nn.Module):
    """The attributes of a form, of the names that they have there."""

    def __init__(self, roles):
        super().__init__()
        set_attributes(self, roles)


def set_attributes(module, roles):
    for name, role in roles.items():
        value = {
            "Eps": 1e-6,
            "RowShape": (64,),
            "Function": torch.nn.functional.silu,
        }.get(role)
        if role in PARAMETERS:
            value = nn.Parameter(torch.rand(64))
        elif role == "Child":
            value = nn.SiLU() if name.endswith("act") else nn.Linear(64, 64)
        elif role.startswith("Literal"):
            value = ast.literal_eval(role[8:-1])
        if role != "Unread":
            setattr(module, name, value)


def written(source, roles, names=vars(forms)):  # noqa: B008 -- the globals of the forms
    """Return a module whose class has the functions of a class's source."""
    file = f"<form {len(linecache.cache)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    space = {**names, "form": lambda *args, **kwargs: lambda code: code}
    exec(compile(source, file, "exec", dont_inherit=True), space)
    name = ast.parse(source).body[0].name
    if issubclass(space[name], nn.LayerNorm):
        module = space[name](64)
        set_attributes(module, roles)
        return module
    functions = {key: each for key, each in vars(space[name]).items() if inspect.isfunction(each)}
    return type(name, (Attributes,), functions)(roles)


def source_of(form):
    """Return the source of a form's class, with the functions that it has from others."""
    tree = ast.parse(inspect.getsource(form.code))
    for base in form.code.__mro__[1:]:
        if base.__module__ == forms.__name__:
            (kind,) = ast.parse(inspect.getsource(base)).body
            tree.body[0].body += [each for each in kind.body if isinstance(each, ast.FunctionDef)]
    return ast.unparse(tree)


@pytest.fixture(params=FORMS, ids=lambda each: each.code.__name__)
def form(request):
    return request.param


def test_a_form_is_known_by_its_own_code(form):
    found = match(written(source_of(form), form.roles))
    assert isinstance(found, Match)
    assert found.form.code is form.code


class Renamed(ast.NodeTransformer):
    """Other names of variables and attributes, annotations and a docstring."""

    def visit_Name(self, node):
        if node.id not in vars(forms) and node.id != "super":
            node.id = f"{node.id}_"
        return node

    def visit_arg(self, node):
        return ast.arg(f"{node.arg}_")

    def visit_Attribute(self, node):
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            node.attr = f"my_{node.attr}"
        self.generic_visit(node)
        return node

    def visit_FunctionDef(self, node):
        self.generic_visit(node)
        node.name = node.name if node.name == "forward" else f"my_{node.name}"
        node.returns = None
        node.body.insert(0, ast.Expr(ast.Constant("Say something else.")))
        return node


def test_names_are_free(form):
    source = ast.unparse(ast.fix_missing_locations(Renamed().visit(ast.parse(source_of(form)))))
    roles = {f"my_{name}": role for name, role in form.roles.items()}
    found = match(written(source, roles))
    assert found.form.code is form.code
    assert found.names == {name: f"my_{name}" for name in found.names}


def mutations(source):
    """Yield the source with one change each: another operator, number, name or order."""
    places = [*ast.walk(ast.parse(source))]
    for i, node in enumerate(places):
        for change in _changes(node):
            tree = ast.parse(source)
            found = [*ast.walk(tree)][i]
            if change(found, tree) is not False:
                yield ast.unparse(ast.fix_missing_locations(tree))


def _changes(node):
    if isinstance(node, ast.BinOp):
        for operator in (ast.Add, ast.Sub, ast.Mult, ast.Div):
            if not isinstance(node.op, operator):
                yield lambda found, tree, operator=operator: setattr(found, "op", operator())
        if ast.dump(node.left) != ast.dump(node.right):
            yield _exchanged
    if isinstance(node, ast.Constant) and node.value is not None:
        yield lambda found, tree: setattr(found, "value", _other(found.value))
    if isinstance(node, ast.Attribute) and ast.unparse(node.value) != "self":
        yield lambda found, tree: setattr(found, "attr", "detach")
    if isinstance(node, ast.Call) and node.args:
        yield lambda found, tree: setattr(found, "args", [found.func, *found.args])
    if isinstance(node, ast.Return):
        yield lambda found, tree: setattr(
            found, "value", _parsed(f"abs({ast.unparse(found.value)})")
        )
    if isinstance(node, ast.FunctionDef):
        yield lambda found, tree: found.body.insert(0, ast.parse("x = x.clamp(max=9)").body[0])
        yield lambda found, tree: found.args.args.append(ast.arg("gate"))
        yield lambda found, tree: found.decorator_list.append(_parsed("torch.no_grad()"))


def _parsed(expression):
    return ast.parse(expression).body[0].value


def _exchanged(found, tree):
    found.left, found.right = found.right, found.left


def _other(value):
    if isinstance(value, bool):
        return not value
    return f"{value}_" if isinstance(value, str) else value + 1


def test_any_change_of_a_form_is_none(form):
    """But where it is another form, which says what it is itself."""
    source, roles = source_of(form), form.roles
    head, body = source.splitlines()[1], source[source.index("\n    def ") :]
    count = 0
    for mutation in mutations(f"class Changed:\n{body}"):
        count += 1
        changed = mutation.replace("class Changed:", head)
        try:
            found = match(written(changed, roles))
        except RefusedError:
            continue
        assert found is None or found.form.code is not form.code, changed
    assert count > 4


def test_one_name_for_two_attributes():
    """The weight is no eps, and the gate is not up."""
    for name in ("eps", "up"):
        kind = LlamaNorm if name == "eps" else SwiGLU
        source = textwrap.dedent(inspect.getsource(kind.forward))
        source = source.replace(f"self.{name}", "self.weight" if name == "eps" else "self.gate")
        roles = {"weight": "Weight", "gate": "Child", "act": "Child", "down": "Child"}
        module = written(f"class One:\n{textwrap.indent(source, '    ')}", roles, globals())
        assert match(module) is None


def test_another_object_of_the_name_of_pytorch():
    source = f"class Other:\n{inspect.getsource(LlamaNorm.forward)}"
    other = types.SimpleNamespace(rsqrt=torch.sqrt, float32=torch.float32)
    roles = {"weight": "Weight", "eps": "Eps"}
    assert match(written(source, roles, {"torch": torch})) is not None
    assert match(written(source, roles, {"torch": other})) is None


OTHER_MODULE = types.ModuleType("other")
OTHER_MODULE.silu = F.silu
__silu, _Mangled__silu = F.silu, F.gelu


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.three = (nn.Linear(16, 16) for _ in range(3))

    def forward(self, x):
        return self.two(F.silu(self.one(x)) * self.three(x))


class OfAnotherModule(nn.Module):
    """What its file calls silu today may be another function tomorrow."""

    def forward(self, x):
        return OTHER_MODULE.silu(x)


class Mangled(Gated):
    """In a class, a name that begins with two underscores is another."""

    def forward(self, x):
        return self.two(__silu(self.one(x)) * self.three(x))


class Static(LlamaNorm):
    """It takes the module as an argument, which no call of it gives."""

    forward = staticmethod(LlamaNorm.forward)


class StaticOfPytorch(nn.SiLU):
    forward = staticmethod(nn.SiLU.forward)


@pytest.mark.parametrize("kind", [OfAnotherModule, Mangled, Static, StaticOfPytorch])
def test_what_python_takes_for_something_else(kind):
    assert not swap_report(kind()).counts
    assert match(kind()) is None


def test_a_function_of_pytorch_that_was_replaced_before_the_swap(monkeypatch):
    assert match(Gated()) is not None
    monkeypatch.setattr(F, "silu", torch.tanh)
    assert match(Gated()) is None


class Hidden(GemmaNorm):
    @property
    def eps(self):
        return 1.0

    @eps.setter
    def eps(self, value):
        pass


def test_attributes_that_the_class_computes():
    (entry,) = swap_report(Hidden()).entries
    assert entry.reason == "its eps is computed by its class"


def test_a_method_of_the_instance():
    module = GemmaNorm()
    module._norm = torch.tanh
    assert match(module) is None


@pytest.mark.parametrize("name", ["__call__", "__getattribute__", "__getattr__"])
def test_classes_with_calls_and_attributes_of_their_own(name):
    def own(self, *args):
        return getattr(nn.Module, name)(self, *args)

    kind = type("Own", (LlamaNorm,), {"forward": LlamaNorm.forward})
    module = kind()
    setattr(kind, name, own)
    assert match(module) is None


def test_a_file_that_was_changed_after_its_import(tmp_path, monkeypatch):
    path = tmp_path / "changing.py"
    text = inspect.getsource(GemmaNorm).replace("(Norm)", "(nn.Module)")
    path.write_text(f"import torch\nfrom torch import nn\n\n\n{text}")
    spec = importlib.util.spec_from_file_location("changing", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    forward = module.GemmaNorm.forward
    assert match(type("Same", (GemmaNorm,), vars(module.GemmaNorm) | {"__module__": "changing"})())
    path.write_text(path.read_text().replace("1.0 + ", "2.0 + "))
    linecache.checkcache(str(path))
    kind = type("Changed", (GemmaNorm,), {"forward": forward, "_norm": module.GemmaNorm._norm})
    (entry,) = swap_report(kind()).entries
    assert entry.reason.startswith("its forward is not what ")


def test_code_that_was_put_into_a_function():
    def forward(self, x):
        return x

    forward.__code__ = LlamaNorm.forward.__code__.replace(co_consts=(None, 3, -1, True))
    assert match(type("Other", (LlamaNorm,), {"forward": forward})()) is None


@functools.cache
def forms_of_transformers():
    """How many classes of transformers' models have the code of each form."""
    counts = collections.Counter()
    for folder in transformers.models.__path__:
        for path in Path(folder).glob("*/modeling_*.py"):
            # Classes that could have a form are short, and parsing the others takes long.
            for part in re.split(r"^(?=\S)", path.read_text(encoding="utf-8"), flags=re.MULTILINE):
                if part.startswith("class ") and "def forward" in part and len(part) < LONGEST:
                    (kind,) = ast.parse(part).body
                    counts.update(_forms_of(kind))
    return counts


def _forms_of(kind):
    functions = {each.name: each for each in kind.body if isinstance(each, ast.FunctionDef)}
    shape = functions.get("forward") and _shape(functions)
    return _shapes().get(shape, [])


@functools.cache
def _shapes():
    found = {}
    for each in FORMS:
        (kind,) = ast.parse(source_of(each)).body
        shape = _shape({f.name: f for f in kind.body if isinstance(f, ast.FunctionDef)})
        found.setdefault(shape, []).append(each.code.__name__)
    return found


def _shape(functions):
    """Return the code of forward and of the method that it calls, with numbers for names."""
    numbers = {}
    texts, todo = [], ["forward"]
    for name in todo:
        tree = ast.parse(ast.unparse(functions[name])).body[0]
        if ast.get_docstring(tree):
            tree.body = tree.body[1:]
        tree.returns, tree.name = None, "f"
        variables = {each.arg for each in tree.args.args}
        variables |= {
            each.id
            for each in ast.walk(tree)
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        }
        for each in ast.walk(tree):
            if isinstance(each, ast.arg):
                each.annotation = None
                each.arg = f"v{numbers.setdefault((name, each.arg), len(numbers))}"
            elif isinstance(each, ast.Attribute) and ast.unparse(each.value) == "self":
                if each.attr in functions and each.attr not in todo:
                    todo.append(each.attr)
                each.attr = f"a{numbers.setdefault(each.attr, len(numbers))}"
        for each in ast.walk(tree):
            if isinstance(each, ast.Name) and each.id in variables - {"self"}:
                each.id = f"v{numbers.setdefault((name, each.id), len(numbers))}"
        texts.append(ast.unparse(tree).replace("nn.functional.", "F."))
    return "\n".join(texts)


def test_every_form_is_one_of_transformers():
    """A form that no model has would be code without use."""
    counts = forms_of_transformers()
    elsewhere = {"GELU", "SiLU", "NewGELU", "FastGELU", "QuickGELU"}  # of transformers.activations
    elsewhere |= {"Gemma3nMLP"}  # whose method that does not run is no part of the form
    assert {each.code.__name__ for each in FORMS} - counts.keys() <= elsewhere


def test_forms_of_norms_and_mlps_of_transformers_are_swapped():
    counts = forms_of_transformers()
    assert counts["Llama"] > 100
    assert counts["LlamaMLP"] > 100
    assert swap_modules(LlamaNorm(), strict=True).counts == {"rms_norm": 1}
