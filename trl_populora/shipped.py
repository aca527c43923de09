"""The recipes that come with the package: where they are, what each one is, and copies of them to change."""

import filecmp
import os
import re
import shutil
from difflib import get_close_matches
from pathlib import Path

from .settings import suggest


PACKAGE = Path(__file__).resolve().parent
RECIPES = PACKAGE / "recipes" if (PACKAGE / "recipes").is_dir() else PACKAGE.parent / "recipes"
"""Folder of the recipes: inside an installed package, beside it in a clone (setup.py)."""

MENTION = re.compile(r"\brecipes(?:/([\w./-]+)|\.([\w.]+))")
"""Finds names of other recipe files in a text, as paths or as modules."""


def list_recipes() -> dict[str, str]:
    """Every recipe by its name, such as `tiny/4t4s.yaml`, with the first sentence of its comment."""
    return {path.relative_to(RECIPES).as_posix(): _summary(path) for path in sorted(RECIPES.glob("*/*.yaml"))}


def copy_recipes(name: str, folder: str | os.PathLike) -> tuple[list[Path], list[Path]]:
    """Copies recipes, and the files of other recipes that they name, to `folder/recipes`.

    Recipes name each other, their base models and their modules from the folder that holds `recipes/`, so they work
    in `folder` as they do in a clone.

    Args:
        name (`str`): A folder of recipes, such as `chains`, or one of its files, such as `tiny/4t4s.yaml`.
        folder (`str` or `os.PathLike`): Where `recipes/` is made, or already is.

    Returns:
        `tuple[list[Path], list[Path]]`: The files that were written, and the files that the recipes name but that
        existed already and were not changed.

    Raises:
        ValueError: If there is no such recipe, or a copy of it would replace a file.
    """
    name = name.strip("/")
    target, wanted = Path(folder) / "recipes", _files(name)
    if not wanted:
        names = [*list_recipes(), *(path.name for path in RECIPES.iterdir())]
        raise ValueError(f"There is no recipe {name!r}. {suggest(name, names, '`populora recipes` lists them.')}")
    if taken := [target / file for file in wanted if (target / file).exists()]:
        raise ValueError(f"{taken[0]} is there already, and would be replaced. Choose another folder, or remove it.")
    written, kept = [], []
    for file in (*wanted, *_named_by(wanted)):
        copy = target / file
        if copy.exists():
            kept.append(copy)
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(RECIPES / file, copy)
        written.append(copy)
    return written, kept


def shipped_base(model: str) -> str | None:
    """`"recipes/chains/base"` for the path of a base model that comes with the recipes, or of a copy of it."""
    found = re.search(r"(?:^|/)recipes/([\w.-]+/[\w.-]+)/?$", model)
    if not found or not (RECIPES / found[1] / "config.json").is_file():
        return None
    own, copy = RECIPES / found[1], Path(model).expanduser()
    _, changed, missing = filecmp.cmpfiles(own, copy, os.listdir(own), shallow=False)
    return None if copy.is_dir() and (changed or missing) else f"recipes/{found[1]}"


def told_if_shipped(path: str) -> str:
    """A sentence on how to get a recipe that is not at `path` and comes with the package; empty if none is meant."""
    name = re.sub(r"^(.*/)?recipes/", "", path)
    if near := get_close_matches(name, list_recipes(), n=1, cutoff=0.8):
        return f" `populora recipes copy {near[0]}` puts the package's {near[0]} here."
    return ""


def _files(name: str) -> list[Path]:
    """Files of a folder of recipes, or the one file of that name, relative to `RECIPES`."""
    source = (RECIPES / name).resolve()
    if not name or RECIPES not in source.parents:
        return []
    found = [source] if source.is_file() else sorted(path for path in source.rglob("*") if path.is_file())
    return [path.relative_to(RECIPES) for path in found if "__pycache__" not in path.parts]


def _named_by(files: list[Path]) -> list[Path]:
    """Files that `files` name, and files that these name in turn, without `files` themselves."""
    found, new = list(files), list(files)
    while new:
        texts = [(RECIPES / file).read_text(encoding="utf-8") for file in new if file.suffix in (".yaml", ".py")]
        named = {file for text in texts for path, module in MENTION.findall(text) for file in _meant(path, module)}
        new = sorted(named - set(found))
        found += new
    return found[len(files) :]


def _meant(path: str, module: str) -> list[Path]:
    """The recipe files that a path or a module name means. The name of an object may follow that of the module."""
    if path:
        return _files(path.rstrip("./"))
    parts = module.rstrip(".").split(".")
    for count in range(len(parts), 0, -1):
        place = "/".join(parts[:count])
        if found := _files(f"{place}.py") or _files(place):
            return found
    return []


def _summary(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    comment = lines[: next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))]
    text = " ".join(line.lstrip("# ") for line in comment)
    return re.split(r"(?<=\.)\s", text, maxsplit=1)[0]
