"""What a program may contain to enter the task buffer.

This is hygiene, not security: it keeps the stock of tasks deterministic, self-contained and readable. A program that
slips past these rules still runs only inside the executor's sandbox, which trusts nothing. Rules read the syntax tree;
nothing here evaluates code. The rules, each with its own refusal reason:

- The text parses, is within its size limit, and holds no reserved marker of the prompt format.
- It defines `f` at the top level, with at least one positional parameter. Helpers, nested functions, recursion,
  lambdas and classes are welcome.
- Besides definitions, the top level holds imports, a docstring, and assignments of constants; nothing that runs.
- Imports come from `ALLOWED_MODULES`, all pure computation; no star imports, no other module reached through these,
  no module used as a value.
- No name of `BANNED_NAMES`: input and output, evaluating text, reflection, and what differs between processes.
- No private attribute of another object, and `format` only on a literal text.
- No dunder name, attribute or string, except that classes may define the ordinary dunder methods of
  `ALLOWED_METHODS`, and call `super().__init__`.
- No `async`, no `global`.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator

from trl_populora.tasks.parsing import num_bytes, reserved_in
from trl_populora.tasks.task import Refusal


ALLOWED_MODULES = frozenset(
    """
    abc bisect cmath collections copy dataclasses decimal enum fractions functools heapq itertools json math numbers
    operator re statistics string textwrap typing
    """.split()  # noqa: SIM905
)
BANNED_NAMES = frozenset(
    """
    print input open eval exec compile globals locals vars dir getattr setattr delattr hasattr breakpoint exit quit
    help id hash memoryview copyright credits license
    """.split()  # noqa: SIM905
)
# Other modules that the allowed ones carry as attributes, and the ways from a value into the interpreter.
BANNED_ATTRIBUTES = frozenset(
    """
    _sys sys random _string _re codecs contextlib types warnings inspect keyword builtins bltns copyreg _thread
    _compiler _parser _constants _casefix
    gi_frame gi_code cr_frame cr_code ag_frame ag_code f_back f_globals f_locals f_builtins f_code tb_frame tb_next
    co_code co_consts func_globals mro
    attrgetter methodcaller get_type_hints evaluate_forward_ref singledispatch singledispatchmethod Formatter vformat
    update_wrapper wraps WRAPPER_ASSIGNMENTS WRAPPER_UPDATES make_dataclass
    """.split()  # noqa: SIM905
)
ALLOWED_PRIVATE = frozenset({"_replace", "_asdict", "_fields", "_make"})  # of named tuples
# Names under which programs refer to objects of their own classes, which may have private attributes.
OWN = frozenset(
    "self cls other node root head tail left right parent child current cur curr prev next obj item".split()
)
ALLOWED_METHODS = frozenset(
    f"__{name}__"
    for name in """
    init post_init repr str eq ne lt le gt ge len iter next getitem setitem delitem contains call bool int float index
    add radd iadd sub rsub isub mul rmul imul truediv rtruediv floordiv rfloordiv mod rmod pow neg pos abs invert
    and or xor lshift rshift hash reversed enter exit missing
    """.split()  # noqa: SIM905
)
_DUNDER_IN_TEXT = re.compile(r"__[A-Za-z0-9]")
_CONSTANT_NODES = (
    ast.Constant,
    ast.Tuple,
    ast.List,
    ast.Set,
    ast.Dict,
    ast.UnaryOp,
    ast.BinOp,
    ast.Name,
    ast.operator,
    ast.unaryop,
    ast.expr_context,
)


def check_program(program: str, *, max_bytes: int = 4096) -> Refusal | None:
    """
    Applies every rule of this module.

    Args:
        program (`str`):
            Source text as written by a proposer.
        max_bytes (`int`, *optional*, defaults to `4096`):
            Size limit in UTF-8 bytes.

    Returns:
        `Refusal` with the first rule that is broken, or `None` if the program may enter the buffer.
    """
    if num_bytes(program) > max_bytes:
        return Refusal("too_large", f"the program has {num_bytes(program)} bytes, at most {max_bytes} are allowed")
    marker = reserved_in(program)
    if marker is not None:
        return Refusal("reserved_text", f"the program contains {marker!r}")
    tree = parse(program)
    if isinstance(tree, Refusal):
        return tree
    return _check_entry(tree) or next(_broken_rules(tree), None)


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
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "f" for t in node.targets):
            return True
    return False


def _check_entry(tree: ast.Module) -> Refusal | None:
    entries = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "f"]
    if not entries:
        return Refusal("no_function", "the program does not define a function f at the top level")
    arguments = entries[-1].args
    if not (arguments.posonlyargs or arguments.args or arguments.vararg):
        return Refusal("no_parameters", "f takes no positional parameter")
    return None


def _broken_rules(tree: ast.Module) -> Iterator[Refusal]:
    for index, node in enumerate(tree.body):
        if not _allowed_at_top(node, first=index == 0):
            yield Refusal("top_level_statement", f"line {node.lineno}: only imports, definitions and constants")
    yield from _loose_modules(tree)
    methods = {id(n) for c in ast.walk(tree) if isinstance(c, ast.ClassDef) for n in c.body if _allowed_method(n)}
    for node in ast.walk(tree):
        if id(node) in methods:
            continue
        refusal = _check_node(node)
        if refusal is not None:
            yield refusal


def _loose_modules(tree: ast.Module) -> Iterator[Refusal]:
    """Modules that are used as values: under another name, their private attributes would look like an object's."""
    imports = [alias for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    modules = {alias.asname or alias.name.split(".")[0] for alias in imports}
    bases = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in modules and id(node) not in bases:
            yield Refusal("banned_name", f"line {node.lineno}: the module {node.id} as a value")


def _allowed_method(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name in ALLOWED_METHODS


def _allowed_at_top(node: ast.stmt, *, first: bool) -> bool:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)):
        return True
    if isinstance(node, ast.Expr):
        return first and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = all(isinstance(target, ast.Name) for target in targets)
        return names and node.value is not None and _is_constant(node.value)
    return False


def _is_constant(value: ast.expr) -> bool:
    return all(isinstance(node, _CONSTANT_NODES) for node in ast.walk(value))


def _check_node(node: ast.AST) -> Refusal | None:
    if isinstance(node, ast.Import):
        return next((refusal for alias in node.names if (refusal := _check_module(alias.name))), None)
    if isinstance(node, ast.ImportFrom):
        names = [alias.name for alias in node.names]
        bad = next((name for name in names if name == "*" or name in BANNED_ATTRIBUTES or name.startswith("_")), None)
        if node.level or bad is not None:
            return Refusal("banned_import", f"line {node.lineno}: from {'.' * node.level}{node.module} import {bad}")
        return _check_module(node.module or "")
    if isinstance(node, (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await, ast.Global)):
        return Refusal("banned_syntax", f"line {node.lineno}: {type(node).__name__}")
    if isinstance(node, ast.Attribute):
        if _is_dunder(node.attr) and not _is_super_init(node):
            return Refusal("dunder", f"line {node.lineno}: attribute {node.attr}")
        if node.attr in BANNED_ATTRIBUTES or _is_private(node) or _is_open_format(node):
            return Refusal("banned_attribute", f"line {node.lineno}: attribute {node.attr}")
    if isinstance(node, ast.MatchClass):
        bad = next((name for name in node.kwd_attrs if name.startswith("_") or name in BANNED_ATTRIBUTES), None)
        if bad is not None:
            return Refusal("banned_attribute", f"line {node.lineno}: attribute {bad} of a pattern")
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and _DUNDER_IN_TEXT.search(node.value):
        return Refusal("dunder", f"line {node.lineno}: a string with a dunder name")
    for name in _names(node):
        if _is_dunder(name):
            return Refusal("dunder", f"name {name}")
        if name in BANNED_NAMES:
            return Refusal("banned_name", f"name {name}")
    return None


def _check_module(name: str) -> Refusal | None:
    parts = name.split(".")
    if parts[0] in ALLOWED_MODULES and not any(part in BANNED_ATTRIBUTES or part[:1] == "_" for part in parts):
        return None
    return Refusal("banned_import", f"import of {name}")


def _names(node: ast.AST) -> tuple[str, ...]:
    """Every identifier that a node itself reads or binds (attributes are looked at on their own)."""
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return (node.name,)
    if isinstance(node, (ast.arg, ast.keyword)):
        return (node.arg,) if node.arg else ()
    if isinstance(node, (ast.MatchAs, ast.MatchStar, ast.ExceptHandler)):
        return (node.name,) if node.name else ()
    if isinstance(node, ast.alias):
        return (node.asname,) if node.asname else ()
    if isinstance(node, ast.MatchMapping):
        return (node.rest,) if node.rest else ()
    if isinstance(node, ast.Nonlocal):
        return tuple(node.names)
    return ()


def _is_dunder(name: str) -> bool:
    return len(name) > 4 and name.startswith("__") and name.endswith("__")


def _is_private(node: ast.Attribute) -> bool:
    """`thing._name`, unless the thing is an object of one of the program's own classes, as far as a name can tell."""
    own = isinstance(node.value, ast.Name) and node.value.id in OWN
    return node.attr.startswith("_") and not own and node.attr not in ALLOWED_PRIVATE and not _is_super_init(node)


def _is_open_format(node: ast.Attribute) -> bool:
    """`text.format`, except on a literal: a format can read attributes, and its text can be put together."""
    return node.attr in ("format", "format_map") and not isinstance(node.value, ast.Constant)


def _is_super_init(node: ast.Attribute) -> bool:
    """`super().__init__`, the one dunder attribute that ordinary classes need."""
    call = node.value
    is_super = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "super"
    return is_super and node.attr == "__init__"
