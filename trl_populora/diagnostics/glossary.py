"""The glossary of the registry: `python -m trl_populora.diagnostics.glossary > docs/metrics.md`."""

import re
import sys
from collections.abc import Iterator

from ..run_files.layout import HISTORY_FILE
from .metrics import COMBINE, PLACEHOLDERS, SECTIONS


PREFACE = f"""\
# Metrics

Every number that a run logs. (This page is made by `python -m trl_populora.diagnostics.glossary > docs/metrics.md`
from the registry, [`diagnostics/metrics.py`](../trl_populora/diagnostics/metrics.py).)

**Names.** The tables use the names of `trainer.state.log_history`. Trackers add `train/` in front, and write `eval/`
instead of `eval_`. So `reward/teacher_0` is `train/reward/teacher_0` there, and `eval_gsm8k/mean` is
`eval/gsm8k/mean`. `{HISTORY_FILE}` has the numbers of every round, under the names of `RoundSummary`. A name starts
with what is measured and ends with the member, so that members are shown side by side. `teachers/<name>` and
`students/<name>` describe one role.

**Zero-sum rewards.** No number averages the rewards of teachers and students (but `reward/agent_0`, of a single agent,
which plays both), because what one side wins the other side loses. So in self-play, TRL's `reward`, `reward_std`,
`frac_reward_zero_std` and `rewards/…` are not logged. TRL's other numbers cover both roles (`loss`, `entropy`, `kl`,
`clip_ratio/…`, `completions/…`, `sampling/…`). They measure cost and stability. They do not measure success.

**Missing numbers.** A number that does not exist in a round has no key, and means leave the round out. Only where the
table says *else 0*, a round without the number counts as 0, and so does a log without it.

**Matched attempts.** A *matched* attempt is an attempt at a valid task that a current teacher proposed to a current
student. Fill-ins (tasks from the buffer), games with champions of the past, and rows on which the executor failed are
not matched attempts.

**Not listed:** numbers that reward functions log themselves (`log_metric`), and `profiling/Time taken: …`, which TRL
sends to wandb and trackio. With several evaluation datasets, transformers puts the name of a dataset after `eval_` for
loss and times.

**Alarms:**

- *disengaged*: all attempts of a pair were solved, or none. It looks at the last 50 rounds, and of these at the newest
  10 in which the two met. It needs at least 5 such rounds and 20 tasks. It is reported for all members together, for a
  member with all its opponents, or for a pair: only the widest of these.
- *no valid proposal from* a member in this round.
- *coverage has not grown* for 20 rounds.
- *ratings are not comparable*: there are groups of members that never met. This is checked from 2·max(teachers,
  students) rounds after the start or a replacement.
- a member whose gradient or weights are *not finite*. It is set back to its last stored weights.
- *nobody was replaced* at a replacement step: a child or a parent of one has weights that are not finite, or no reward
  function has scored some member yet."""


def glossary() -> Iterator[str]:
    """The lines of docs/metrics.md."""
    yield from PREFACE.splitlines()
    yield from ("", "| in a name | stands for |", "|---|---|")
    yield from (f"| `<{name}>` | {meaning} |" for name, (_, meaning) in PLACEHOLDERS.items())
    yield from ("", "| per log | how the values since the last log (`logging_steps`) become one |", "|---|---|")
    yield from (f"| {name} | {meaning} |" for name, meaning in COMBINE.items())
    for heading, metrics in SECTIONS.items():
        yield from ("", f"## {heading}", "")
        yield from ("| name | meaning | unit or range | per log | when |", "|---|---|---|---|---|")
        for one in metrics:
            name = re.sub(r"\{(\w+)\}", r"<\1>", one.name)
            names = f"`{name}`, `eval_{name}`" if one.evaluated else f"`{name}`"
            when = (one.when or "always") + ("; else 0" if one.zero else "")
            yield f"| {names} | {one.meaning} | {one.unit} | {one.combine} | {when} |"


if __name__ == "__main__":
    sys.stdout.writelines(line + "\n" for line in glossary())
