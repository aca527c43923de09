"""The glossary of the registry: `python -m trl_populora.diagnostics.glossary > docs/metrics.md`."""

import re
import sys
from collections.abc import Iterator

from ..run_files.layout import HISTORY_FILE
from .metrics import COMBINE, PLACEHOLDERS, SECTIONS


PREFACE = f"""\
# Metrics

Written by `python -m trl_populora.diagnostics.glossary > docs/metrics.md` from the registry,
[`diagnostics/metrics.py`](../trl_populora/diagnostics/metrics.py).

Names are those of `trainer.state.log_history`. Trackers show `train/` before them, and `eval/` in the place of
`eval_`: `reward/teacher_0` is `train/reward/teacher_0` there, `eval_gsm8k/mean` is `eval/gsm8k/mean`.
`{HISTORY_FILE}` has the numbers of every round, under the names of `RoundSummary`.

What is measured comes first and whose it is comes last, so that members stand side by side. `teachers/<name>` and
`students/<name>` are of one role. No number averages the rewards of both sides of a zero-sum game: in self-play TRL's
`reward`, `reward_std`, `frac_reward_zero_std` and `rewards/…` are not logged. TRL's numbers of all rows that stay
(`loss`, `entropy`, `kl`, `clip_ratio/…`, `completions/…`, `sampling/…`) measure cost and health, not success.

A number that does not exist in a round has no key. A *matched* attempt is one at a valid task that a member teacher
proposed to a member student: no fill-in, no champion of the past, no row on which the executor failed.

Not listed: what reward functions log themselves (`log_metric`), and `profiling/Time taken: …`, which TRL sends to
wandb and trackio. With several evaluation datasets transformers puts a dataset's name after `eval_` for loss and
times.

Alarms: *disengaged* (over the last 10 rounds in which two met, of the last 50 rounds, all attempts were solved or
none, in at least 5 rounds and 20 tasks; told of everybody, of a member with all its opponents, or of a pair, whichever
is widest), *no valid proposal from* a member in this round, *coverage has not grown* for 20 rounds, *ratings are not
comparable* (groups that never met; asked from 2·max(teachers, students) rounds after the start or a replacement on),
and those of the guard.
"""


def glossary() -> Iterator[str]:
    """The lines of docs/metrics.md."""
    yield from PREFACE.splitlines()
    yield from ("", "| in a name | stands for |", "|---|---|")
    yield from (f"| `<{name}>` | {meaning} |" for name, (_, meaning) in PLACEHOLDERS.items())
    yield from ("", "| per log | what becomes of the values since the last log (`logging_steps`) |", "|---|---|")
    yield from (f"| {name} | {meaning} |" for name, meaning in COMBINE.items())
    for heading, metrics in SECTIONS.items():
        yield from ("", f"## {heading}", "")
        yield from ("| name | meaning | unit or range | per log | when |", "|---|---|---|---|---|")
        for one in metrics:
            name = re.sub(r"\{(\w+)\}", r"<\1>", one.name)
            names = f"`{name}`, `eval_{name}`" if one.evaluated else f"`{name}`"
            yield f"| {names} | {one.meaning} | {one.unit} | {one.combine} | {one.when or 'always'} |"


if __name__ == "__main__":
    sys.stdout.writelines(line + "\n" for line in glossary())
