"""The files of a run are named in one place and written in one place, and nowhere else in the package."""

import ast
import functools
from pathlib import Path

import trl_populora
from trl_populora.run_files import layout
from trl_populora.run_files.layout import checkpoint_folder, checkpoint_step, checkpoints


PACKAGE = Path(trl_populora.__file__).parent
# No files of a run: what engines read, what the executor writes in /proc, a user's tests, the cache of a base model,
# nothing in place of a closed standard output.
OTHERS = ("run_files", "generation", "executor", "testing", "integrations/base_models", "integrations/user_data")
OTHERS += ("output.py",)
NAMES = {value for name, value in vars(layout).items() if name.isupper() and isinstance(value, str)}
NAMES |= {*layout.ADAPTER_FILES, ".parquet", ".safetensors"}
WORDS = {name for name in NAMES if name.isidentifier()}  # such as "rounds": names only where a path is put together
WRITERS = {
    *("os.replace", "os.rename", "os.fsync", "json.dump", "pickle.dump", "shutil.move"),
    *("tempfile.mkdtemp", "tempfile.mkstemp", "tempfile.NamedTemporaryFile"),
}
LIBRARIES = ("torch.save", "save_file", "save_pretrained", "savefig")  # write where they are told, which is aside


@functools.cache
def sources() -> dict[str, ast.AST]:
    names = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
    return {name: ast.parse(path.read_bytes()) for name, path in names.items() if not name.startswith(OTHERS)}


def texts(tree: ast.AST) -> list[str]:
    """All texts in the code below a node, docstrings left out."""
    nodes = list(ast.walk(tree))
    prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    constants = (node for node in nodes if isinstance(node, ast.Constant) and id(node) not in prose)
    return [node.value for node in constants if isinstance(node.value, str)]


def calls(tree: ast.AST) -> list[tuple[ast.Call, str]]:
    """Calls, each with what is called: `"os.replace"`."""
    return [(node, ast.unparse(node.func)) for node in ast.walk(tree) if isinstance(node, ast.Call)]


def misspelled(tree: ast.AST) -> list[str]:
    found = [text for text in texts(tree) if any(name in text for name in NAMES - WORDS)]
    paths = [call for call, name in calls(tree) if name.endswith(("path.join", "Path", "joinpath"))]
    return found + [text for call in paths for text in texts(call) if WORDS & set(text.split("/"))]


def writing(tree: ast.AST) -> list[str]:
    found = []
    for call, name in calls(tree):
        modes = [text for part in (*call.args[1:], *call.keywords) for text in texts(part)]
        opened = name == "open" and any(set(mode) <= set("rwaxbt+") and set(mode) & set("wax+") for mode in modes)
        told = name.endswith(LIBRARIES) and "aside" not in ast.unparse(call)
        if opened or told or name in WRITERS or name.endswith((".write_text", ".write_bytes")):
            found.append(ast.unparse(call))
    return found


def test_every_name_is_spelled_once():
    found = {name: wrong for name, tree in sources().items() if (wrong := misspelled(tree))}
    assert not found, "use trl_populora.run_files.layout"


def test_every_file_is_written_by_one_room():
    found = {name: wrong for name, tree in sources().items() if (wrong := writing(tree))}
    assert not found, "use trl_populora.run_files.files"


def test_the_rules_find_what_they_forbid():
    for code in (
        'open(folder + "/history.jsonl")', 'os.path.join(folder, "rounds")', 'f"{folder}/checkpoint-{step}"',
        'os.path.join(folder, name, "adapter_config.json")', 'Path(folder, "plots/a")',
    ):  # fmt: skip
        assert misspelled(ast.parse(code)), code
    for code in (
        'open(path, "w")', 'open(path, mode="ab")', "json.dump(data, file)", "os.replace(a, b)",
        'Path(a).write_text("")', "torch.save(args, path)", "figure.savefig(path)",
    ):  # fmt: skip
        assert writing(ast.parse(code)), code
    for code in (
        'open(path, "rb")', "name.replace(a, b)", "torch.save(args, aside)", '"""Reads history.jsonl."""', "dumps(a)",
    ):  # fmt: skip
        assert not misspelled(ast.parse(code)) and not writing(ast.parse(code)), code


def test_checkpoints_are_listed_by_step(tmp_path):
    for name in ("checkpoint-10", "checkpoint-9", "checkpoint-x", "checkpoint-", "my-checkpoint-3", "other"):
        (tmp_path / name).mkdir()
    folders = checkpoints(str(tmp_path))
    assert folders == [checkpoint_folder(str(tmp_path), step) for step in (9, 10)]
    assert [checkpoint_step(folder) for folder in folders] == [9, 10]
    assert checkpoint_step("runs/checkpoint-studies/checkpoint-4") == 4
    assert checkpoints(str(tmp_path / "nowhere")) == []
