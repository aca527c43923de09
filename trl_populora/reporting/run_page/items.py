"""The items of a run's page, with all their attempts, within a budget of bytes.

An item is a task, a refused proposal or, in a run on a dataset, a prompt. They are read from the tables of the rounds,
one table at a time, in two passes. The first reads every item and the length of its texts. Then items are chosen: the
newest, the hardest and a random sample take turns until the budget is full. The second pass reads their texts.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...run_files.round_table import COLUMNS
from ..page.figures import thinned
from ..page.rendering import Packed, pack_text
from ..tables import counted


MAX_TABLES = 600
"""Maximum number of tables that are read. For a longer run, they are evenly spread and include the last."""
MAX_TEXT = 6000
"""Characters of a text; the rest is cut off, and the text says so."""
MAX_ATTEMPTS = 100
"""Number of newest attempts that are shown for an item."""
MIN_ATTEMPTS = 3
"""Minimum attempts before a task counts as hard."""
SPARED = "infra_error"
RATIO, MOST = 4.0, 12
"""Compression of texts in the page: a first guess, and the maximum, which limits how many texts are read."""
SHORT = tuple(name for name in COLUMNS if name not in ("payload", "prompt", "completion", "detail", "rewards"))
LONG = ("payload", "prompt", "completion")


@dataclass
class Item:
    """An item without its texts.

    Attributes:
        kind (`str`): `"task"`, `"refused"` or `"prompt"`.
        type, author (`str`, *optional*): Task type, and who proposed it.
        round (`int`): Round of the proposal, or of the first attempt if there is none, from 1. last (`int`): Round of
            the newest attempt; 0 without one.
        attempts, judged, solved (`int`): Attempts, those that count, and those that solved it.
        rewards (`list[float]`): Of the attempts.
        proposed (`bool`): Whether its proposal was read, which gave `round` and `version`.
        size (`int`): Characters of its texts.
    """

    kind: str
    type: str | None = None
    author: str | None = None
    version: int | None = None
    round: int = 0
    last: int = 0
    attempts: int = 0
    judged: int = 0
    solved: int = 0
    rewards: list[float] = field(default_factory=list)
    proposed: bool = False
    size: int = 200

    @property
    def rate(self) -> float | None:
        """Share of the attempts that solved it, without spared ones."""
        return self.solved / self.judged if self.judged else None

    @property
    def reward(self) -> float | None:
        return sum(self.rewards) / len(self.rewards) if self.rewards else None

    @property
    def ease(self) -> float | None:
        """The value that items are sorted by: the solve rate, or the reward if attempts are not judged."""
        return self.reward if self.rate is None else self.rate


@dataclass(frozen=True)
class Items:
    """The items that are on the page of a run.

    Attributes:
        packed ([`Packed`], *optional*): The chosen items as `page.js` reads them; `None` if there are none.
        shown (`dict[str, int]`), found (`dict[str, int]`): Kind -> items on the page, and in the tables.
        authors, types (`list[str]`): Of those on the page, in order.
        judged (`bool`): Whether attempts are judged as solved or not. Otherwise they have only rewards.
        remarks (`tuple[str, ...]`): Sentences on what was left out.
    """

    packed: Packed | None
    shown: dict[str, int]
    found: dict[str, int]
    authors: list[str]
    types: list[str]
    judged: bool
    remarks: tuple[str, ...]


def collect_items(tables: Mapping[int, str], *, budget: int) -> Items:
    """Chooses items and reads their texts.

    Args:
        tables (`Mapping[int, str]`): Round -> path of its table. Those that cannot be read are left out.
        budget (`int`): Maximum bytes, compressed and in base64.
    """
    remarks = []
    chosen_tables = [tables[number] for number in thinned(sorted(tables), MAX_TABLES)]
    if len(chosen_tables) < len(tables):
        remarks.append(f"Tasks come from {len(chosen_tables)} of {len(tables)} rounds, evenly spread.")
    found, unreadable = _scan(chosen_tables)
    if unreadable:
        remarks.append(f"{counted(len(unreadable), 'table')} cannot be read. The first is {unreadable[0]}.")
    readable = [path for path in chosen_tables if path not in unreadable]
    order = _in_turns(found)
    packed, count = _fill(found, order, readable, budget)
    shown = [found[key] for key in order[:count]]
    if count < len(order):
        remarks.append(
            f"{count:,} of {len(order):,} tasks and proposals are on this page, to keep it small: the newest, the "
            "hardest, and an even spread of the others. The tables in rounds/ have all of them."
        )
    return Items(
        packed,
        _kinds(shown),
        _kinds(found.values()),
        authors=sorted({item.author for item in shown if item.author}),
        types=sorted({item.type for item in shown if item.type}),
        judged=any(item.judged for item in shown),
        remarks=tuple(remarks),
    )


def _fill(
    found: Mapping[str, Item], order: Sequence[str], tables: Sequence[str], budget: int
) -> tuple[Packed | None, int]:
    """As many items, in this order, as fit into the budget, and their number."""
    order = order[: _prefix([found[key].size for key in order], MOST * budget)]
    encoded = [json.dumps(text, ensure_ascii=False) for text in _read_texts(found, order, tables).values()]
    packed, count, ratio = None, 0, RATIO
    for _ in range(4):
        wanted = _prefix(list(map(len, encoded)), ratio * budget)
        attempt = pack_text(f"[{','.join(encoded[:wanted])}]")
        if len(attempt) <= budget and wanted > count:
            packed, count = attempt, wanted
        if count == len(encoded) or (count == wanted and len(attempt) > 0.9 * budget):
            break
        ratio = 0.97 * sum(map(len, encoded[:wanted])) / len(attempt)
    return packed, count


def _prefix(sizes: Sequence[int], allowed: float) -> int:
    """How many of the first sizes fit together; at least one."""
    total = 0
    for count, size in enumerate(sizes):
        total += size
        if count and total > allowed:
            return count
    return len(sizes)


def _in_turns(found: Mapping[str, Item]) -> list[str]:
    """All keys. The newest, the hardest and a random sample take turns. Every tenth key is a refused proposal."""
    kept = [key for key, item in found.items() if item.kind != "refused"]
    refused = _shuffled(key for key, item in found.items() if item.kind == "refused")
    newest = sorted(kept, key=lambda key: (-found[key].round, key))
    hard = [key for key in kept if found[key].ease is not None and found[key].attempts >= MIN_ATTEMPTS]
    hardest = sorted(hard, key=lambda key: (found[key].ease, -found[key].attempts, key))
    spread = _shuffled(kept)
    queues = [iter(newest), iter(hardest), *[iter(spread)] * 7, iter(refused)]
    order: dict[str, None] = {}
    while len(order) < len(found):
        for queue in queues:
            if (key := next((one for one in queue if one not in order), None)) is not None:
                order[key] = None
    return list(order)


def _shuffled(keys: Iterator[str] | Sequence[str]) -> list[str]:
    """The keys in a random order that is always the same."""
    return sorted(keys, key=lambda key: hashlib.md5(key.encode("utf-8", "replace")).digest())


def _kinds(items: Iterable[Item]) -> dict[str, int]:
    return dict(Counter(item.kind for item in items))


# Reading tables ------------------------------------------------------------------------------------------------------


def _scan(tables: Sequence[str]) -> tuple[dict[str, Item], list[str]]:
    """Every item of the tables, by key, and the tables that cannot be read."""
    import pyarrow

    found: dict[str, Item] = {}
    unreadable = []
    for path in tables:
        try:
            table = _read(path, (*SHORT, *LONG))
        except (OSError, pyarrow.ArrowException, ValueError):
            unreadable.append(path)
            continue
        for row in _rows(table, SHORT, sizes=True):
            _count(found, row)
    return found, unreadable


def _count(found: dict[str, Item], row: Mapping[str, Any]) -> None:
    key, number, proposes = row["key"], (row["round"] or 0) + 1, row["proposes"]
    if key not in found:
        kind = "prompt" if key.startswith("prompt:") else "refused" if key.startswith("refused:") else "task"
        author = row["author"] or (row["member"] if proposes else None)
        size = 250 + row["size of payload"] + (row["size of prompt"] if kind == "prompt" else 0)
        found[key] = Item(kind, row["type"], author, round=number, size=size)
    item = found[key]
    item.size += row["size of completion"]
    if proposes:
        if row["kind"] != "late" and not item.proposed:  # a champion's task may be proposed again
            item.round, item.version, item.proposed = number, row["version"], True
        return
    item.last = max(item.last, number)
    item.attempts += 1
    item.size += 120
    if row["solved"] is not None and row["reason"] != SPARED:
        item.judged += 1
        item.solved += bool(row["solved"])
    if row["reward"] is not None and row["reward"] == row["reward"]:
        item.rewards.append(row["reward"])


def _read_texts(found: Mapping[str, Item], keys: Sequence[str], tables: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Key -> item with its texts, in the format that `page.js` reads."""
    texts = {key: _head(key, found[key]) for key in keys}
    for path in tables if texts else ():
        for row in _rows(_read(path, tuple(COLUMNS)), tuple(COLUMNS), only=texts):
            _add(texts[row["key"]], row)
    for text in texts.values():
        text["attempts"] = text["attempts"][-MAX_ATTEMPTS:]
    return texts


def _head(key: str, item: Item) -> dict[str, Any]:
    return {
        "id": key.partition(":")[2] if item.kind != "task" else key,
        "kind": item.kind,
        "type": item.type,
        "author": item.author,
        "version": item.version,
        "round": item.round,
        "last": item.last,
        "n": item.attempts,
        "solved": item.solved,
        "rate": _rounded(item.rate),
        "reward": _rounded(item.reward),
        "attempts": [],
    }


def _add(text: dict[str, Any], row: Mapping[str, Any]) -> None:
    """Adds a row to its item."""
    if text["kind"] == "prompt":
        text.setdefault("fields", {"prompt": _prompt(row["prompt"])})
    elif row["payload"] is not None and "fields" not in text:
        text["fields"] = _payload(row["payload"])
    if row["proposes"]:
        proposal = {
            "m": row["member"],
            "c": _cut(row["completion"]),
            "t": row["tokens"],
            "w": _rounded(row["reward"]),
            "x": row["reason"],
            "d": _cut(row["detail"]),
        }
        late = {"w": proposal["w"]} if row["kind"] == "late" else {}
        text["proposal"] = {**proposal, **text.get("proposal", {}), **late}
        return
    attempt = {
        "r": (row["round"] or 0) + 1,
        "m": row["member"],
        "v": row["version"],
        "o": row["opponent"],
        "k": None if row["kind"] == "learned" else row["kind"],
        "f": row["fill_in"] or None,
        "s": row["solved"],
        "x": row["reason"],
        "d": _cut(row["detail"]),
        "w": _rounded(row["reward"]),
        "ws": row["rewards"],
        "a": _rounded(row["advantage"]),
        "l": row["learned"],
        "t": row["tokens"],
        "c": _cut(row["completion"]),
    }
    text["attempts"].append({name: value for name, value in attempt.items() if value is not None})


def _read(path: str, columns: Sequence[str]) -> Any:
    """The table with these columns, of nulls where the file does not have one. Repeated texts are stored once."""
    import pyarrow.parquet

    there = set(pyarrow.parquet.read_schema(path).names)
    repeating = [name for name in ("prompt", "payload") if name in there]
    file = pyarrow.parquet.ParquetFile(path, read_dictionary=repeating)
    table = file.read(columns=[name for name in columns if name in there])
    for name in (name for name in columns if name not in there):
        table = table.append_column(name, pyarrow.nulls(table.num_rows, pyarrow.string()))
    return table


def _rows(
    table: Any, columns: Sequence[str], *, sizes: bool = False, only: Mapping[str, Any] | None = None
) -> Iterator[dict[str, Any]]:
    """Rows as mappings with all columns, the `"key"` of the item, and whether the row `"proposes"` it.

    Args:
        table (`pyarrow.Table`): Table of a round.
        columns (`Sequence[str]`): Columns of the rows.
        sizes (`bool`, *optional*): Whether rows also have the `"size of ..."` their long texts.
        only (`Mapping`, *optional*): Keys of the items whose rows are returned; all if unset.
    """
    import pyarrow

    keys, proposes = _keys(table)
    if only is not None:
        wanted = [key in only for key in keys]
        table = table.filter(pyarrow.array(wanted))
        keys, proposes = ([one for one, kept in zip(values, wanted) if kept] for values in (keys, proposes))
    values = {name: table[name].to_pylist() for name in columns}
    if sizes:
        values |= {f"size of {name}": _lengths(table, name) for name in LONG}
    values |= {"key": keys, "proposes": proposes}
    for cells in zip(*values.values()):
        row = dict(zip(values, cells))
        if row["kind"] != "late" or row["task"] is not None:  # else it repeats a refusal; its reward has not changed
            yield row


def _keys(table: Any) -> tuple[list[str], list[bool]]:
    """Key of the item of every row, and whether the row is its proposal."""
    keys, proposes, prompts = [], [], None
    columns = (table[name].to_pylist() for name in ("task", "role", "valid", "round"))
    for k, (task, role, valid, number) in enumerate(zip(*columns)):
        # Rows of a dataset have no task. A refused proposal has none either, but its role is teacher.
        proposes.append(role == "teacher" and (valid is not None or task is not None))
        if task is None and not proposes[-1]:
            prompts = prompts or table["prompt"].to_pylist()
            task = "prompt:" + hashlib.md5((prompts[k] or "").encode("utf-8", "replace")).hexdigest()[:12]
        keys.append(task or f"refused:{number}-{k}")
    return keys, proposes


def _lengths(table: Any, name: str) -> list[int]:
    """Characters of each text of a column, at most `MAX_TEXT`; 0 if there is no text."""
    import pyarrow
    import pyarrow.compute

    column = table[name].cast(pyarrow.string())
    sizes = pyarrow.compute.call_function("utf8_length", [column]).to_pylist()
    return [min(size or 0, MAX_TEXT) for size in sizes]


# Texts ---------------------------------------------------------------------------------------------------------------


def _payload(text: str) -> dict[str, Any]:
    """Fields of a task for the page: a text as it is, a list of texts as lines, everything else as JSON."""
    try:
        fields = json.loads(text)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        return {"payload": _cut(text)}
    return {name: _cut(_field(one)) for name, one in fields.items()}


def _field(value: Any) -> str:
    if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
        return "\n".join(value)
    return value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False)


def _prompt(text: str | None) -> str | None:
    """A prompt as text. The messages of a chat follow each other, with their roles."""
    try:
        messages = json.loads(text or "")
        return _cut("\n\n".join(f"[{one['role']}]\n{one['content']}" for one in messages))
    except (ValueError, TypeError, KeyError):
        return _cut(text)


def _cut(text: str | None) -> str | None:
    if text is None or len(text) <= MAX_TEXT:
        return text
    return f"{text[:MAX_TEXT]}\n… {len(text) - MAX_TEXT:,} more characters in the table of the round"


def _rounded(value: float | None) -> float | None:
    return None if value is None or value != value else round(value, 4)
