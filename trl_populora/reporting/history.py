"""Reading a run folder's `history.jsonl`: one `RoundSummary` a line, as the trainer appends them."""

import json
import os

from ..diagnostics import RoundSummary


HISTORY_FILE = "history.jsonl"


def read_history(folder: str | os.PathLike) -> list[RoundSummary]:
    """Rounds of a run, in order.

    A run that was killed and resumed plays some rounds twice: the later line counts. A last line that was cut off in
    the middle is passed over.

    Raises:
        ValueError: If the folder has no history, or a line other than the last is damaged.
    """
    path = os.path.join(folder, HISTORY_FILE)
    if not os.path.isfile(path):
        raise ValueError(f"{folder} has no {HISTORY_FILE}; give the output_dir of a run")
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    rounds: dict[int, RoundSummary] = {}
    for number, line in enumerate(lines, start=1):
        try:
            summary = RoundSummary.from_json(json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines):
                break
            raise ValueError(f"{path}, line {number}, is not a round ({error}); remove the line") from None
        rounds[summary.round] = summary
    return [rounds[number] for number in sorted(rounds)]
