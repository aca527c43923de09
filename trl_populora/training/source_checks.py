"""What the methods of a [`RowSource`] return, checked where they are called: users write sources, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..diagnostics import RoundSummary
from .row_source import RowSource
from .scored_rows import ScoredRows


if TYPE_CHECKING:
    from ..generation import Sampler
    from ..population import Population
    from .config import PopulationSelfPlayConfig
    from .ranks import Ranks
    from .trainer import PopulationSelfPlayTrainer


def checked_setup(
    source: RowSource, args: PopulationSelfPlayConfig, population: Population, sampler: Sampler, ranks: Ranks
) -> None:
    """Calls `RowSource.setup`.

    Raises:
        ValueError: If a subclass overrides it without a call of the inherited one.
    """
    source.setup(args, population, sampler, ranks)
    if getattr(source, "population", None) is not population:
        raise ValueError(
            f"{type(source).__name__}.setup does not call super().setup(args, population, sampler, ranks). Call it "
            "first: it keeps these objects, and makes the ratings."
        )


def checked_rows(
    source: RowSource, begun: Any, *, wanted: int, training: bool
) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows and adapters that `RowSource.begin` has returned.

    Raises:
        ValueError: If they are not `wanted` rows and the adapter of each, a prompt is none, columns differ, or, in
            training, a group has several prompts or adapters.
    """
    name = f"{type(source).__name__}.begin"
    if not (isinstance(begun, tuple) and len(begun) == 2 and all(isinstance(one, list) for one in begun)):
        raise ValueError(f"{name} must return a list of rows and a list of members' names, got {begun!r:.100}.")
    rows, members = begun
    whole = len(rows) == len(members) == wanted and all("prompt" in row for row in rows)
    if not whole or not set(members) <= set(source.population):
        raise ValueError(
            f"{name} must return {wanted} rows with a 'prompt' and as many names out of "
            f"{list(source.population)}, got {len(rows)} rows such as {repr(rows[:1])[:100]} and {len(members)} names "
            f"{sorted(set(members))}."
        )
    for row in rows:
        prompt, first = row["prompt"], rows[0]["prompt"]
        if not (isinstance(prompt, (str, list)) and prompt and isinstance(prompt, type(first))):
            raise ValueError(
                f"{name}: a prompt is text or a list of messages, not empty, and of one kind in all rows; got "
                f"{prompt!r:.100} and, in the first row, {first!r:.100}."
            )
        if row.keys() != rows[0].keys():
            raise ValueError(f"{name}: all rows need the same columns, got {list(rows[0])} and {list(row)}.")
    if training and type(source).advantages is RowSource.advantages:  # those of TRL compare the rows of a group
        size, start = source.args.num_generations, source.ranks.index * wanted
        for i in range(1, wanted):
            same = (members[i], rows[i]["prompt"]) == (members[i - 1], rows[i - 1]["prompt"])
            if (start + i) % size and not same:
                raise ValueError(
                    f"{name}: rows {i - 1} and {i} are of one group of num_generations={size} rows, whose rewards are "
                    f"compared, but have different prompts or members ({members[i - 1]}, {members[i]}). Give each "
                    "group one prompt and one member, or override `advantages`. (A transform of a dataset must give a "
                    "row the same prompt each time.)"
                )
    return rows, members


def checked_rewards(source: RowSource, rewards: torch.Tensor) -> torch.Tensor:
    """What `RowSource.spare` makes of rewards.

    Raises:
        ValueError: If that is no tensor of floats of their shape.
    """
    found: Any = source.spare(rewards)
    if not (isinstance(found, torch.Tensor) and found.shape == rewards.shape and found.is_floating_point()):
        raise ValueError(
            f"{type(source).__name__}.spare must return the rewards, a tensor of shape {tuple(rewards.shape)}, with "
            f"NaN for rows that must not count, got {_told(found)}."
        )
    return found


def checked_advantages(source: RowSource, rows: ScoredRows) -> np.ndarray | None:
    """What `RowSource.advantages` returns for rows, with 0 for rows that do not count (their reward is NaN).

    Raises:
        ValueError: If that is neither `None` nor one finite number for each row that counts.
    """
    found: Any = source.advantages(rows)
    if found is None:
        return None
    if isinstance(found, np.ndarray) and found.dtype.kind in "fiu" and found.shape == rows.rewards.shape:
        counted = np.where(np.isnan(rows.rewards), 0.0, found)
        if np.isfinite(counted).all():
            return counted
    raise ValueError(
        f"{type(source).__name__}.advantages must return None or a NumPy array of shape {rows.rewards.shape} with a "
        f"finite number for each row that counts, got {_told(found)}."
    )


def checked_rollout(source: RowSource, prompts: list, trainer: PopulationSelfPlayTrainer) -> dict[str, list | None]:
    """What `RowSource.rollout` returns for prompts.

    Raises:
        ValueError: If that is not a prompt, a completion and, if any, log-probabilities for each, or if the base does
            not have a token of a completion.
    """
    found: Any = source.rollout(prompts, trainer)
    lists = isinstance(found, Mapping) and all(
        isinstance(found.get(name), list) and len(found[name]) == len(prompts)
        for name in ("prompt_ids", "completion_ids", *(["logprobs"] if found.get("logprobs") is not None else []))
    )
    if not lists:
        raise ValueError(
            f"{type(source).__name__}.rollout must return a dict of lists with one entry for each of {len(prompts)} "
            f"prompts: 'prompt_ids', 'completion_ids' and 'logprobs' (or None for that), got {_told(found)}. "
            "`RowSource.as_rollout` makes it."
        )
    known = source.population.base_model.config.get_text_config().vocab_size
    if wrong := [token for ids in found["completion_ids"] for token in ids if not 0 <= token < known]:
        raise ValueError(
            f"{type(source).__name__}.rollout gave a completion with the token id {wrong[0]}, and the base has "
            f"{known} tokens, from id 0. By default, they are the sampler's."
        )
    return dict(found)


def checked_finish(source: RowSource, rows: ScoredRows, metrics: dict[str, list[float]]) -> None:
    """Calls `RowSource.finish`. Numbers of NumPy and torch that it logs become floats, which checkpoints can hold.

    Raises:
        ValueError: If something else is logged.
    """
    source.finish(rows, metrics)
    for name, values in metrics.items():
        try:
            values[:] = [one if isinstance(one, (int, float)) else float(one) for one in values]
        except (TypeError, ValueError):
            raise ValueError(
                f"{type(source).__name__}.finish must append numbers to the lists of metrics, got {name}: "
                f"{values!r:.100}."
            ) from None


def checked_summary(source: RowSource, norms: Mapping[str, float]) -> RoundSummary:
    """What `RowSource.summary` returns.

    Raises:
        ValueError: If that is no [`RoundSummary`], or a field of it has another type than it says.
    """
    found: Any = source.summary(grad_norms=norms)
    name = f"{type(source).__name__}.summary"
    if not isinstance(found, RoundSummary):
        raise ValueError(
            f"{name} must return a RoundSummary, got {_told(found)}. Change what super().summary(...) returns with "
            "dataclasses.replace."
        )
    try:
        found.check()
    except ValueError as error:
        raise ValueError(
            f"{name} must return a RoundSummary with fields of the types that it says: {error}."
        ) from None
    return found


def _told(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return f"{value!r:.100}" + ("" if shape is None else f" of shape {tuple(shape)}")
