"""The family tree of a run, as text, from its `lineage.jsonl`. The layout is the lineage's."""

import os
from collections.abc import Sequence


LINEAGE_FILE = "lineage.jsonl"


def family_tree(folder: str | os.PathLike, names: Sequence[str] = ()) -> str:
    """Who descends from whom in the run kept in `folder`; members without descendants are listed when named.

    Raises:
        ValueError: If the lineage file is damaged.
    """
    from ..evolution.lineage import Lineage

    return Lineage(os.path.join(folder, LINEAGE_FILE)).family_tree(names)
