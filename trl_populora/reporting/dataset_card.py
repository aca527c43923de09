"""The card of a dataset repository that holds the tables of a run: its README.md on the Hub."""

from collections.abc import Mapping, Sequence
from typing import Any

from huggingface_hub import DatasetCardData

from ..run_files.layout import ROUNDS_FOLDER, TABLE_SUFFIX
from ..run_files.round_table import ROUND_TABLE
from .model_card import CardBase
from .tables import counted


def dataset_card(
    tables: Mapping[str, Sequence[str]],
    *,
    repo_id: str,
    base: str | None = None,
    hub_base: str | None = None,
    self_play: bool = True,
    metadata: Mapping[str, Any] | None = None,
) -> str:
    """Text of the card, with one configuration per folder of tables, which `load_dataset` reads.

    Args:
        tables (`Mapping[str, Sequence[str]]`): Folder of tables -> their paths here; at least one each.
        repo_id (`str`): Where the card will stand.
        base (`str`, *optional*): Name of the base. hub_base (`str`, *optional*): Its id on the Hub, if it is there.
        self_play (`bool`, *optional*, defaults to `True`): Whether teachers proposed tasks, for the tags.
        metadata (`Mapping`, *optional*): Metadata that the card has on the Hub already; it stays, and tags are added.
    """
    import pyarrow.parquet

    configs: list[dict[str, Any]] = [
        {"config_name": name, "data_files": f"{name}/*{TABLE_SUFFIX}"} | ({"default": True} if number == 0 else {})
        for number, name in enumerate(sorted(tables, key=lambda name: (name != ROUNDS_FOLDER, name)))
    ]
    there = dict(metadata or {})
    tags = dict.fromkeys(["populora", *["self-play"] * self_play, *there.pop("tags", ())])
    known = {"pretty_name": repo_id.rpartition("/")[2], "task_categories": ["text-generation"]}
    data = DatasetCardData(**{**known, **there, "tags": list(tags), "configs": configs})
    model = f", on the base {CardBase.named(base, hub_base, here=False).words}" if base else ""
    sections = [
        f"---\n{data.to_yaml()}\n---",
        f"# Rounds of a PopuLoRA population\n\nWhat the members of a population of LoRA adapters wrote in training"
        f"{model}, and the verdicts. The texts are written by models: prompts, tasks and answers that may be "
        "wrong, and programs that nobody should run outside a sandbox.",
    ]
    for config in configs:
        name = config["config_name"]
        rows = sum(pyarrow.parquet.read_metadata(path).num_rows for path in tables[name])
        columns = pyarrow.parquet.read_schema(tables[name][-1])
        lines = [
            f"## `{name}`",
            f"{counted(len(tables[name]), 'table')}, {counted(rows, 'row')}.",
            _example(repo_id, name),
        ]
        meanings = {column: told for column, (_, told) in ROUND_TABLE.items()} if name == ROUNDS_FOLDER else {}
        table = [f"| `{one.name}` | {one.type} | {meanings.get(one.name, '')} |" for one in columns]
        lines.append("\n".join(["| column | type | meaning |", "|---|---|---|", *table]))
        sections.append("\n\n".join(lines))
    return "\n\n".join(sections) + "\n"


def _example(repo_id: str, name: str) -> str:
    return f"""```python
from datasets import load_dataset

{name} = load_dataset("{repo_id}", "{name}", split="train")
```"""
