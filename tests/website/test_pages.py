"""What the site is generated from, without building it: links, settings, commands, notebooks."""

import inspect
import pkgutil
import re
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from trl_populora.recipe import RunArguments
from trl_populora.tasks import make_task_types
from trl_populora.training import PopulationSelfPlayConfig
from trl_populora.training.nested import NESTED
from website.commands import command_parsers, commands_page
from website.families import families_page
from website.notebooks import code_cells, notebook_page
from website.settings import owners, settings_page


ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
LINK = re.compile(r"\]\(([^)\s#:]+)(?:#([^)\s]*))?\)")
FENCE = re.compile(r"^(`{3,}).*?^\1", re.MULTILINE | re.DOTALL)
GENERATED = {f"docs/reference/{name}.md" for name in ("settings", "commands", "families")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_every_link_leads_to_a_file(page):
    """Anchors are checked by `make docs`."""
    for target, _ in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        path = (page.parent / target).resolve()
        assert path.is_file() or str(path.relative_to(ROOT)) in GENERATED, target


def test_every_name_in_the_reference_exists_in_the_module_that_it_names():
    """Where it is defined, that is: the site is built from source text, which does not know what is imported."""
    names = [name for page in PAGES for name in re.findall(r"^::: (\S+)", page.read_text(), re.MULTILINE)]
    assert len(names) > 50
    for name in names:
        found = pkgutil.resolve_name(name)
        module = name.rpartition(".")[0]
        assert getattr(found, "__module__", module) == module or inspect.ismodule(found), name


def test_every_page_is_in_the_navigation():
    class Loader(yaml.SafeLoader):
        """mkdocs.yml may hold tags of its own."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)
    nav = str(yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)["nav"])
    assert [str(page.relative_to(DOCS)) for page in PAGES if f"'{page.relative_to(DOCS)}'" not in nav] == []


def test_every_setting_is_listed_with_its_meaning():
    page = settings_page()
    wanted = {field.name for cls in (RunArguments, PopulationSelfPlayConfig) for field in fields(cls) if field.init}
    for nested in NESTED.values():
        wanted |= {field.name for field in fields(nested.record) if field.name not in nested.without}
    assert sorted(name for name in wanted if f"| `{name}` |" not in page) == []
    own = {name for name, cls in owners().items() if cls is PopulationSelfPlayConfig}
    unexplained = [name for name in own if re.search(rf"^\| `{name}` \|.*\| – \|$", page, re.MULTILINE)]
    assert unexplained == []


def test_a_changed_default_stands_out():
    page = settings_page()
    assert "| `learning_rate` | `float` | **`1e-05`** |" in page  # GRPO's is 1e-6
    assert "| `num_generations` | `int` | `8` |" in page  # unchanged


def test_every_command_is_listed_with_its_options(monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")  # no name of an option is cut in two
    page = commands_page()
    for name, parser in command_parsers().items():
        section = page.split(f"## `populora {name}`")[1].split("\n## ")[0]
        if name != "train":  # whose options are the settings
            told = " ".join(re.findall(r"^  (-.*?)(?:  |$)", parser.format_help(), re.MULTILINE))
            options = set(re.findall(r"(?<![\w-])--[a-z-]+", told)) - {"--help"}
            assert [one for one in sorted(options) if f"`{one}`" not in section] == []
            assert [
                line for line in section.splitlines() if line.startswith("| ") and "| – |" in line
            ] == []  # no help


@pytest.mark.slow
def test_every_family_of_seed_tasks_is_listed_with_an_example():
    page = families_page()
    for name, kind in make_task_types(["code_o", "sql"]).items():
        section = page.split(f"\n## {name}\n")[1].split("\n## ")[0]
        usual = kind.default_families or kind.families
        assert re.findall(r"^### (.*)", section, re.MULTILINE) == [
            f"`{family}`" + ("" if family in usual else " *") for family in kind.families
        ]
    assert "The families of [code_o](#code_o)." in page and "f([6, 4, 7, 8]) = 25" in page


@pytest.mark.slow
def test_a_notebook_becomes_text_and_code():
    notebook = (
        '{"cells": [{"cell_type": "markdown", "source": ["# A\\n", "b"]}, {"cell_type": "code", "source": ["c = 1"]}]}'
    )
    assert notebook_page(notebook) == "# A\nb\n\n```python\nc = 1\n```\n"
    assert code_cells(notebook) == ["c = 1"]
