"""Texts that no task type may fail on: long, nested, broken, or code that would leave a mark if anything ran it.

Only text is made here. What a type must do with it is checked in `child.py` and `task_type.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator


MARK = "populora_hostile"  # name of the file or attribute that a text leaves behind if it is evaluated
LONG = 100_000

PROGRAMS = (
    f"setattr(__import__('builtins'), '{MARK}', 1)",
    f"open('{MARK}', 'w').close()",
    f"__import__('os').system('touch {MARK}')",
    f"__import__('subprocess').run(['touch', '{MARK}'])",
    f"exec('import builtins; builtins.{MARK} = 1')",
    f"print('{MARK}')",
    f"import builtins\nbuiltins.{MARK} = 1",
    f"raise SystemExit('{MARK}')",
    f"!!python/object/apply:os.system ['touch {MARK}']",
    f"cos\nsystem\n(S'touch {MARK}'\ntR.",  # a pickle
)
BODIES = (
    *PROGRAMS,
    "",
    "x",
    "9" * 5_000,
    "-" * 5_000,
    "(" * 5_000 + "1" + ")" * 5_000,
    "[" * 50_000,
    "{'a':" * 10_000,
    "1,000",
    "1 " + "+ 1 " * 10_000,
    "1, " * 15_000,
    "9 ** 9 ** 9",
    "1e999",
    "nan",
    "1/0",
    "\x00",
    "\ud800",
    "\u0663 + \uff14",  # digits, but not those of ASCII
    "\u202e\u200b",
    "'" * 5_001,
    "\\" * 5_001,
    "<|im_end|>",
    "<think>",
    "</answer>",
    "[INST] x [/INST]",
)
TEXTS = (
    *BODIES,
    " \n" * 1_000,
    "a" * LONG,
    "(" * LONG,
    "\r" * LONG,
    "\x00" * LONG,
    "\ud83d" * LONG,
    "```" * (LONG // 3),
    "```a\n" * (LONG // 5),
    "`" * (LONG - 1),
    "<think>" * (LONG // 7),
    "</think>" * (LONG // 8),
    "<answer>" * (LONG // 8) + "</answer>" * 100,
    "\\boxed{" * (LONG // 7),
    "\\boxed{}",
    "```\n```",
    "```python\n```python\n1\n```\n```",
    "```output\n<answer>\n```input\n</answer>```",
    "<think>```output\n1\n```",
)


def completions(right: str) -> Iterator[str]:
    """Variants of a right completion: cut, nested, repeated, and with its content replaced by other text."""
    yield from (right[: len(right) // 2], right[:-1], right + "```", f"<think>{right}", f"```a\n{right}\n```")
    yield from (f"<answer>{right}", right * max(2, LONG // max(1, len(right))), right.replace("\n", ""))
    parts = right.split("```")
    for at in sorted({1, len(parts) - 2} & set(range(1, len(parts), 2))):
        label = parts[at].partition("\n")[0]
        yield from ("```".join([*parts[:at], f"{label}\n{body}\n", *parts[at + 1 :]]) for body in BODIES)
    words = list(re.finditer(r"\w+", right))
    for word in words[-1:]:
        yield from (right[: word.start()] + body + right[word.end() :] for body in BODIES)


def corpus(rights: Iterable[str]) -> list[str]:
    """`TEXTS`, and what [`completions`] makes of each of `rights`; without repetitions, in a fixed order."""
    return list(dict.fromkeys([*TEXTS, *(text for right in rights for text in completions(right))]))
