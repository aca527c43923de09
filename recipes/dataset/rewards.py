"""The reward function of recipes/dataset/programs.yaml: the example of a reward of your own."""

import re


ANSWER = re.compile(r"```output\n(.*?)\n```", re.DOTALL)


def right_output(completions: list[list[dict]], answer: list[str], **columns) -> list[float]:
    """1 for the right answer, 0 for a wrong one, -1 where there is no `output` block.

    Args:
        completions (`list[list[dict]]`): One conversation for each row: what the member wrote.
        answer (`list[str]`): The column of the dataset with this name.
        **columns: The other columns, and `player`, the member that wrote the row.
    """
    found = [ANSWER.search(completion[0]["content"]) for completion in completions]
    return [-1.0 if block is None else float(block[1].strip() == right) for block, right in zip(found, answer)]
