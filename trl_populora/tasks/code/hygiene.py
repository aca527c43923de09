"""Static rules: what a program may contain to become a task.

These rules are not for security. They keep tasks deterministic, self-contained and readable. Every program runs only
inside the executor's sandbox, and four processes must agree on its outputs. So there are rules only for things that
the sandbox cannot detect: a clock, random numbers, text that is run as code, and access from a value to the
interpreter, with which a program could get these or forge its own result. The rules read the syntax tree, and nothing
here evaluates code. Each rule has its own refusal reason. `prompts.program_rules` states them in the teachers'
prompts, from the same constants:

- The text parses, is within its size limit, and holds no reserved marker of the prompt format.
- It holds no sign that nobody sees, and no name mixes letters of ASCII with those of another script than Latin. It
  uses no name that the sandbox alone has, or has not (`__name__`, `ABSENT_NAMES`). The prompts do not mention these.
- It defines `f` at the top level, with at least one positional parameter.
- The top level may compute constants and tables. It calls `f` only in an assignment, or in a test: `print(...)`,
  `assert`, or the `__main__` block.
- Only modules of `ALLOWED_MODULES` are imported, which only compute. Star imports, private names of modules, other
  modules reached through these, and modules used as values are refused.
- It uses no builtin of `BANNED_NAMES`, and `LITERAL_NAMES`, `vars` and `wraps` only in a form that can be checked. A
  name that the program certainly binds itself is allowed (`scopes.py`).
- It uses no private attribute that it does not set or define itself.
- No dunder name, attribute or text, except `ALLOWED_METHODS`, `ALLOWED_DUNDERS`, `CLASS_DUNDERS` of a class, and the
  name `__all__`. Not `__doc__`: docstrings are taken out (`source.py`).
- No `async`.
"""

from __future__ import annotations

import ast
import importlib
import re
import unicodedata
import warnings
from collections.abc import Iterator
from functools import cache
from types import ModuleType

from trl_populora.tasks.code.scopes import at_top, foreign_loads
from trl_populora.tasks.parsing import num_bytes, reserved_in, unseen_in
from trl_populora.tasks.task import Refusal


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


REASONS = {
    "syntax_error": "the program does not parse",
    "no_function": "it does not define `f` at the top level",
    "no_parameters": "`f` takes no argument",
    "banned_import": "it imports what is not allowed",
    "banned_name": "it uses a name that is not allowed",
    "banned_attribute": "it uses an attribute that is not allowed",
    "dunder": "it uses a `__name__` that is not allowed",
    "top_level_statement": "it calls `f` outside functions",
    "banned_syntax": "it holds syntax that is not allowed",
}
ALLOWED_MODULES = _words(
    """
    abc array bisect cmath collections contextlib copy dataclasses decimal enum fractions functools heapq itertools
    json math numbers operator re statistics string struct textwrap typing
    """
)
BANNED_NAMES = _words("breakpoint compile eval exec globals hash id input locals open")  # `hash` may define `__hash__`
# Not in the sandbox, or not the same: `except MemoryError` depends on its limits.
ABSENT_NAMES = _words("MemoryError exit quit help copyright credits license")
# Called directly only, with the name of the attribute as a literal, or as text that begins with a literal.
LITERAL_NAMES = _words("getattr setattr delattr attrgetter methodcaller")
# Members of allowed modules that run text, or find attributes by computed names.
BANNED_MEMBERS = _words(
    """
    dataclasses.make_dataclass functools.singledispatch functools.singledispatchmethod string.Formatter
    typing.ForwardRef typing.evaluate_forward_ref typing.get_args typing.get_type_hints
    """
)
# From a value into the interpreter, or from an enum into modules. Exceptions and functions lead there by dunders only.
BANNED_ATTRIBUTES = _words("gi_frame gi_code f_back f_globals f_locals f_builtins f_code tb_frame tb_next _convert_")
ALLOWED_PRIVATE = _words("_replace _asdict _fields _field_defaults _make _value_ _name_")  # of named tuples and enums
ALLOWED_METHODS = frozenset(
    f"__{name}__"
    for name in _words(
        """
        new init post_init init_subclass class_getitem repr str format eq ne lt le gt ge len iter next getitem setitem
        delitem contains missing call bool int float complex index round trunc floor ceil add radd iadd sub rsub isub
        mul rmul imul matmul rmatmul truediv rtruediv itruediv floordiv rfloordiv ifloordiv mod rmod imod divmod pow
        rpow ipow neg pos abs invert and rand iand or ror ior xor rxor ixor lshift rlshift rshift rrshift hash reversed
        enter exit copy deepcopy getattr setattr delattr get set delete set_name length_hint
        """
    )
)
ALLOWED_DUNDERS = _words("__name__ __qualname__ __class__ __dict__ __main__")
CLASS_DUNDERS = _words("__slots__ __match_args__ __hash__")  # assigned in the body of a class
# As attributes these would call for an attribute, or for a hash, what the rules for names refuse.
_NOT_READ = _words("__hash__ __getattr__ __get__ __set__ __delete__ __main__")
_READ = ALLOWED_METHODS | ALLOWED_DUNDERS
_DUNDER_IN_TEXT = re.compile(r"__[A-Za-z0-9_]*?[A-Za-z0-9]__")
_FULL_NAMES = _words("getattr setattr delattr operator.attrgetter operator.methodcaller")
# Positional arguments, and no others: `vars()` is `locals()`, and more of `wraps` copies attributes of computed names.
_ARGUMENTS = {"vars": 1, "functools.wraps": 1, "functools.update_wrapper": 2}


def check_program(program: str, *, max_bytes: int = 4096, parameters: bool = True) -> Refusal | None:
    """
    Applies every rule of this module.

    Args:
        program (`str`):
            Source text as written by a teacher.
        max_bytes (`int`, *optional*, defaults to `4096`):
            Size limit in UTF-8 bytes.
        parameters (`bool`, *optional*, defaults to `True`):
            Whether `f` must take at least one positional argument.

    Returns:
        `Refusal` with the first broken rule, or `None` if the program is allowed.
    """
    if num_bytes(program) > max_bytes:
        return Refusal("too_large", f"the program has {num_bytes(program)} bytes, at most {max_bytes} are allowed")
    if (marker := reserved_in(program)) is not None:
        return Refusal("reserved_text", f"the program contains {marker!r}")
    tree = parse(program)
    if isinstance(tree, Refusal):
        return tree
    if (marker := unseen_in(program)) is not None:
        return Refusal("reserved_text", f"the program contains {marker!r}")
    try:
        return _check_entry(tree, parameters) or next(_broken_rules(tree), None)
    except RecursionError:
        return Refusal("syntax_error", "nested too deeply")


def parse(program: str) -> ast.Module | Refusal:
    """Syntax tree of a program whose size the caller has checked, or the refusal `syntax_error`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as an invalid escape: the author's business, not the user's
            return ast.parse(program)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return Refusal("syntax_error", f"{type(error).__name__}: {error}"[:200])


def defines_f(tree: ast.Module) -> bool:
    """Whether the top level binds the name `f` by a definition or an assignment."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "f":
            return True
        targets = node.targets if isinstance(node, ast.Assign) else ()
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = (node.target,)
        if any(isinstance(target, ast.Name) and target.id == "f" for target in targets):
            return True
    return False


def entry(tree: ast.Module) -> ast.FunctionDef | None:
    """The last definition of `f` at the top level, or `None`."""
    return next((n for n in reversed(tree.body) if isinstance(n, ast.FunctionDef) and n.name == "f"), None)


def _check_entry(tree: ast.Module, parameters: bool) -> Refusal | None:
    function = entry(tree)
    if function is None:
        return Refusal("no_function", "the program does not define a function f at the top level")
    arguments = function.args
    if parameters and not (arguments.posonlyargs or arguments.args or arguments.vararg):
        return Refusal("no_parameters", "f takes no positional parameter")
    return None


def _broken_rules(tree: ast.Module) -> Iterator[Refusal]:
    for statement in tree.body:
        if not (isinstance(statement, (ast.Assign, ast.AnnAssign)) or is_test(statement)):
            for node in at_top(statement):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "f":
                    yield Refusal("top_level_statement", f"line {node.lineno}: f is called outside functions")
    yield from _broken_imports(tree)
    yield from _broken_names(tree)
    private = _own_private(tree)
    in_class = {id(node) for c in ast.walk(tree) if isinstance(c, ast.ClassDef) for node in _class_dunders(c)}
    guards = {id(node) for one in tree.body if isinstance(one, ast.If) and is_test(one) for node in ast.walk(one.test)}
    for node in ast.walk(tree):
        refusal = _check_scripts(node)
        if refusal is None and id(node) not in in_class:
            refusal = _check_dunder(node) or _check_node(node, private)
        if isinstance(node, ast.Name) and node.id == "__name__" and id(node) not in guards:
            refusal = Refusal("dunder", f"line {node.lineno}: the name of the module")  # another one in the sandbox
        if refusal is not None:
            yield refusal


def is_test(node: ast.stmt) -> bool:
    """`print(...)`, `assert`, or the block of `__main__`, which the executor never runs."""
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "__name__ == '__main__'" and not node.orelse
    call = node.value if isinstance(node, ast.Expr) else None
    prints = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "print"
    return prints or isinstance(node, ast.Assert)


def _check_node(node: ast.AST, private: set[str]) -> Refusal | None:
    if isinstance(node, (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)):
        return Refusal("banned_syntax", f"line {node.lineno}: {type(node).__name__}")
    if isinstance(node, ast.Attribute):
        return _check_attribute(node.attr, private, node.lineno)
    if isinstance(node, ast.MatchClass):
        found = (_check_attribute(name, private, node.lineno) for name in node.kwd_attrs)
        return next((refusal for refusal in found if refusal), None)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        bad = set(_DUNDER_IN_TEXT.findall(node.value)) - _READ - CLASS_DUNDERS - {"__all__"}
        if bad:
            return Refusal("dunder", f"line {node.lineno}: a string with {min(bad)}")
    if isinstance(node, (ast.Constant, ast.Name)):
        word = node.value if isinstance(node, ast.Constant) else node.id
        if isinstance(word, str) and word in BANNED_ATTRIBUTES:  # a field of this name could match it in a pattern
            return Refusal("banned_attribute", f"line {node.lineno}: the name {word}")
    return None


def _check_attribute(name: str, private: set[str], line: int) -> Refusal | None:
    if _is_dunder(name):
        allowed = name in _READ and name not in _NOT_READ
        return None if allowed else Refusal("dunder", f"line {line}: attribute {name}")
    if name in BANNED_ATTRIBUTES or name.startswith("_") and name not in private:
        return Refusal("banned_attribute", f"line {line}: attribute {name}")
    return None


def _check_dunder(node: ast.AST) -> Refusal | None:
    """Dunder names that a node itself reads or binds (attributes are looked at on their own)."""
    names = [getattr(node, field, None) for field in ("id", "name", "arg", "asname", "rest")]
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        names += node.names
    read = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    for name in names:
        allowed = read and name in _READ or name == "__all__" and isinstance(node, ast.Name)
        if isinstance(name, str) and _is_dunder(name) and not allowed:
            return Refusal("dunder", f"name {name}")
    return None


def _check_scripts(node: ast.AST) -> Refusal | None:
    """A name such as `p\u0430y`, which only looks like `pay`."""
    for _, value in () if isinstance(node, ast.Constant) else ast.iter_fields(node):
        for name in value if isinstance(value, list) else [value]:
            if isinstance(name, str) and not name.isascii() and _mixes_scripts(name):
                return Refusal("banned_name", f"the name {name} mixes letters of several scripts")
    return None


def _mixes_scripts(name: str) -> bool:
    letters = [sign for sign in name if sign.isalpha()]
    latin = [unicodedata.name(sign, "").startswith("LATIN") for sign in letters]
    return any(map(str.isascii, letters)) and not all(latin)


def _class_dunders(definition: ast.ClassDef) -> Iterator[ast.AST]:
    """The nodes of a class body that may carry a dunder name: methods, and targets such as `__radd__ = __add__`."""
    for statement in definition.body:
        if isinstance(statement, ast.FunctionDef) and statement.name in ALLOWED_METHODS:
            yield statement
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        for target in targets:
            if isinstance(target, ast.Name) and target.id in ALLOWED_METHODS | CLASS_DUNDERS:
                yield target


def _own_private(tree: ast.Module) -> set[str]:
    """Private attributes that are the program's own: it sets them, or defines them in a class."""
    names = set(ALLOWED_PRIVATE)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.Call) and _called(node) in ("setattr", "__setattr__"):
            names |= {_text(node, 0) or "", _text(node, 1) or ""}
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                for part in ast.walk(inner) if isinstance(inner, (ast.Assign, ast.AnnAssign)) else [inner]:
                    name = getattr(part, "name", None) or getattr(part, "id", None) or getattr(part, "value", None)
                    names |= {name} if isinstance(name, str) else set()
    mangled = {f"_{c.name.lstrip('_')}{n}" for c in ast.walk(tree) if isinstance(c, ast.ClassDef) for n in names}
    return names | mangled


def _broken_imports(tree: ast.Module) -> Iterator[Refusal]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if _allowed_module(_module(alias.name)) is None:
                    yield Refusal("banned_import", f"import of {alias.name}")
        elif isinstance(node, ast.ImportFrom):
            if node.module == "__future__" and not node.level:
                continue
            module = None if node.level else _allowed_module(_module(node.module or ""))
            if module is None:
                yield Refusal("banned_import", f"import of {'.' * node.level}{node.module or ''}")
                continue
            for alias in node.names:
                if alias.name == "*" or _check_member(module, alias.name):
                    yield Refusal("banned_import", f"line {node.lineno}: from {node.module} import {alias.name}")


def _broken_names(tree: ast.Module) -> Iterator[Refusal]:
    """Builtins, modules, and members of modules that are used as they must not be."""
    imports = _imports(tree)
    parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    hashers = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "__hash__"]
    hashing = {id(node) for method in hashers for node in ast.walk(method)}
    for name in foreign_loads(tree):
        if name.id in BANNED_NAMES | ABSENT_NAMES and not (name.id == "hash" and id(name) in hashing):
            yield Refusal("banned_name", f"line {name.lineno}: name {name.id}")
        for value in [*imports.get(name.id, []), name.id]:
            node: ast.AST = name
            while isinstance(value, ModuleType):
                parent = parents.get(id(node))
                if not isinstance(parent, ast.Attribute):
                    yield Refusal("banned_name", f"line {name.lineno}: the module {value.__name__} as a value")
                    break
                refusal = _check_member(value, parent.attr)
                if refusal is not None:
                    yield refusal
                    break
                node, value = parent, getattr(value, parent.attr, None)
            call = parents.get(id(node))
            full = value if isinstance(value, str) else _special_members().get(id(value), "")
            refusal = _check_form(
                full, call if isinstance(call, ast.Call) and call.func is node else None, name.lineno
            )
            if refusal is not None:
                yield refusal


def _check_form(name: str, call: ast.Call | None, line: int) -> Refusal | None:
    """Builtins and members of modules that are harmless in one form only; `call` is the call of it, if it is one."""
    if name in _FULL_NAMES:
        allowed = call is not None and not call.keywords and _names_its_attribute(name, call)
        return None if allowed else Refusal("banned_name", f"line {line}: {name} without a literal attribute name")
    if name in _ARGUMENTS:
        plain = call is not None and not call.keywords and not any(isinstance(a, ast.Starred) for a in call.args)
        if not plain or len(call.args if call else ()) != _ARGUMENTS[name]:
            return Refusal("banned_name", f"line {line}: {name} with other than {_ARGUMENTS[name]} plain arguments")
    return None


def _names_its_attribute(name: str, call: ast.Call) -> bool:
    """Whether a call says in its text which attributes it reaches, and all of them are allowed."""
    if any(isinstance(argument, ast.Starred) for argument in call.args[:2]):
        return False
    if name == "operator.attrgetter":
        texts = [_text(call, place) for place in range(len(call.args))]
        return all(text is not None and _harmless(part) for text in texts for part in (text or "_").split("."))
    place = 0 if name == "operator.methodcaller" else 1
    text = _text(call, place)
    if text is not None:
        return name == "setattr" or _harmless(text)
    start = _start(call.args[place]) if len(call.args) > place else ""
    return start[:1].isalpha() and not any(word.startswith(start) for word in BANNED_ATTRIBUTES)


def _harmless(attribute: str) -> bool:
    return _check_attribute(attribute, {attribute}, 0) is None


def _text(call: ast.Call, place: int) -> str | None:
    """The argument at this place if it is literal text."""
    argument = call.args[place] if len(call.args) > place else None
    return argument.value if isinstance(argument, ast.Constant) and isinstance(argument.value, str) else None


def _start(value: ast.expr) -> str:
    """The literal text with which `f"visit_{name}"` or `"visit_" + name` surely begins."""
    if isinstance(value, ast.JoinedStr) and value.values:
        value = value.values[0]
    while isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        value = value.left
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


def _called(call: ast.Call) -> str:
    return getattr(call.func, "id", None) or getattr(call.func, "attr", None) or ""


def _imports(tree: ast.Module) -> dict[str, list[object]]:
    """What each imported name may stand for: modules and members of modules."""
    found: dict[str, list[object]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                value = _module(alias.name if alias.asname else alias.name.split(".")[0])
                found.setdefault(alias.asname or alias.name.split(".")[0], []).append(value)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                value = getattr(_module(node.module or ""), alias.name, None)
                found.setdefault(alias.asname or alias.name, []).append(value)
    return found


def _check_member(module: ModuleType, name: str) -> Refusal | None:
    value = getattr(module, name, None)
    foreign = isinstance(value, ModuleType) and _allowed_module(value) is None
    if name.startswith("_") or foreign or _special_members().get(id(value)) in BANNED_MEMBERS:
        return Refusal("banned_attribute", f"{name} of the module {module.__name__}")
    return None


def _allowed_module(module: ModuleType | None) -> ModuleType | None:
    """The module if it is allowed, or a public part of one that is."""
    parts = module.__name__.split(".") if module is not None else [""]
    return module if parts[0] in ALLOWED_MODULES and not any(part.startswith("_") for part in parts) else None


def _module(name: str) -> ModuleType | None:
    """A module of the standard library as programs would get it, `None` unless it is allowed. Loads no other."""
    first, *rest = name.split(".")
    value = importlib.import_module(first) if first in ALLOWED_MODULES else None
    for part in rest:
        value = getattr(value, part, None)
    return value if isinstance(value, ModuleType) else None


@cache
def _special_members() -> dict[int, str]:
    """Members of modules with a rule of their own, by identity, so that no other name hides them."""
    names = [name for name in [*BANNED_MEMBERS, *_FULL_NAMES, *_ARGUMENTS] if "." in name]
    values = {name: getattr(_module(name.split(".")[0]), name.split(".")[1], None) for name in names}
    return {id(value): name for name, value in values.items() if value is not None}


def _is_dunder(name: str) -> bool:
    return len(name) > 4 and name.startswith("__") and name.endswith("__")
