"""Checks a user's dataset before a run starts, so that a bad row or a missing column does not end it on the way."""

from typing import Any

import pyarrow as pa
import pyarrow.compute
from datasets import Dataset, IterableDataset

from .reward_functions import PASSED


pc: Any = pyarrow.compute  # whose functions are made when it is imported, so that no checker of types knows them

_WRITTEN_OUT = r"""^\s*\[\s*\{\s*['"](role|content)['"]\s*:"""  # how a list of messages begins in a text


def check_dataset(name: str, dataset: Any) -> None:
    """Raises `ValueError` if a population cannot train on this dataset, whatever its reward functions are.

    Args:
        name (`str`): What the message calls the dataset.
        dataset (`Dataset`, *optional*): What the user passed. Of `None`, nothing is checked.
    """
    if not isinstance(dataset, Dataset | IterableDataset | None):
        raise ValueError(
            f"{name} must be a datasets.Dataset, got {type(dataset).__name__}: pass one split of a DatasetDict, and "
            "make one of a list by Dataset.from_list."
        )
    if isinstance(dataset, IterableDataset):
        raise ValueError(
            f"{name} streams, and a stream cannot be resumed exactly. Load it without streaming, or take(n) rows into "
            "a Dataset."
        )
    if dataset is None:
        return
    shown = {*(dataset[0] if len(dataset) else dataset.column_names)}  # as a format or a transform gives the rows
    columns = shown.union(dataset.column_names)
    if columns & {"image", "images"}:
        raise ValueError(f"{name} has an image column: a population trains on text only.")
    if "prompt" not in shown:
        raise ValueError(f"{name} has no column 'prompt', only {sorted(shown)}. Rename the column with the prompts.")
    if "player" in columns:
        raise ValueError(f"{name} has a column 'player', which names the member that answers. Rename it.")
    if taken := columns & set(PASSED):
        raise ValueError(
            f"{name} has a column {min(taken)!r}, which is what reward functions get from the run. Rename it."
        )
    check_prompts(name, dataset)


def check_prompts(name: str, dataset: Dataset) -> None:
    """Raises `ValueError` with the first row whose prompt is null or empty, is chat messages written as text, or has a
    message without role or content.

    A message with `tool_calls` needs no content. A column of numbers, of single messages, of lists of anything but
    messages, or of both texts and chat messages is refused. One of another type is only checked for null. Prompts that
    a transform makes are not checked.
    No row becomes a Python object: a million rows take less than a second.

    Args:
        name (`str`): What the message calls the dataset.
        dataset (`Dataset`): It has a column `prompt`.
    """
    about: Any = dataset.format
    if about["type"] == "custom":  # a transform, which may make the prompts
        return
    column = dataset.data.column("prompt")
    if _is_no_prompt(column.type):
        raise ValueError(
            f"{name}: its prompts have the type {column.type}. A prompt is a text, or a list of chat messages with "
            "role and content."
        )
    if isinstance(column.type, pa.JsonType):  # datasets' type for values of several types
        selected: Any = dataset.select_columns("prompt").with_format("arrow")[:]
        texts = pc.starts_with(selected["prompt"].cast(pa.string()), '"')
        rows = {"a text": pc.index(texts, True).as_py(), "chat messages": pc.index(texts, False).as_py()}
        if min(rows.values()) >= 0:
            told = " and that of ".join(f"row {row + 1} is {kind}" for kind, row in rows.items())
            raise ValueError(f"{name}: the prompt of {told}. Write all prompts in one way.")
    if not any(map(_first_fault, column.chunks)):  # of all rows, also those not selected
        return
    start = 0
    tables: Any = dataset.select_columns("prompt").with_format("arrow").iter(batch_size=10_000)
    for table in tables:
        found = _first_fault(table["prompt"].combine_chunks())
        if found is not None:
            row, fault = start + found[0], found[1]
            raise ValueError(
                f"{name}: the prompt of row {row + 1} (index {row}) {fault}. Give the row a text, or chat messages "
                "with role and content, or remove it."
            )
        start += len(table)


def _is_no_prompt(kind: pa.DataType) -> bool:
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    item = kind.value_type if is_list else kind
    plain = pa.types.is_primitive(item) or is_list and (pa.types.is_string(item) or pa.types.is_large_string(item))
    return plain or pa.types.is_struct(kind) or pa.types.is_binary(item) or pa.types.is_large_binary(item)


def _first_fault(prompts: pa.Array) -> tuple[int, str] | None:
    """Index of the first prompt at fault, and what is wrong with it."""
    faults = {"is null": pc.is_null(prompts)}
    kind = prompts.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        faults["is empty"] = pc.equal(pc.binary_length(prompts), 0)
        written_out = "is chat messages written as a text, as in CSV (use JSON lines or Parquet)"
        faults[written_out] = pc.match_substring_regex(prompts, _WRITTEN_OUT)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        faults["is empty"] = pc.equal(pc.list_value_length(prompts), 0)
        if pa.types.is_struct(kind.value_type):
            partial = pc.list_parent_indices(prompts).filter(_partial(pc.list_flatten(prompts)))
            rows = pa.array(range(len(prompts)), partial.type)
            faults["has a message without role or content"] = pc.is_in(rows, partial)
            faults["has content that is not text, such as an image"] = pc.is_in(rows, _not_text(prompts))
    found = [(pc.index(mask, True).as_py(), fault) for fault, mask in faults.items()]
    return min((one for one in found if one[0] >= 0), default=None)


def _not_text(prompts: pa.Array) -> pa.Array:
    """Indices of prompts in which a message has a part of another type than text."""
    messages, owner = pc.list_flatten(prompts), pc.list_parent_indices(prompts)
    names = {field.name: field.type for field in messages.type}
    parts = getattr(names.get("content"), "value_type", None)
    if parts is None or not pa.types.is_struct(parts) or "type" not in {field.name for field in parts}:
        return owner[:0]
    contents = pc.struct_field(messages, "content")
    other = pc.not_equal(pc.struct_field(pc.list_flatten(contents), "type"), "text")
    return owner.take(pc.list_parent_indices(contents).filter(other))


def _partial(messages: pa.Array) -> pa.Array:
    """Whether each message lacks its role or content."""
    fields = {field.name: pc.struct_field(messages, field.name) for field in messages.type}
    there = (pc.is_valid(fields.get(name, pa.nulls(len(messages)))) for name in ("role", "content", "tool_calls"))
    role, content, calls = there
    return pc.invert(pc.and_(role, pc.or_(content, calls)))
