"""The registry of metrics: every number that a run logs, its meaning, and how the values of an interval are combined.

Names say first what is measured and last whose it is (`reward/teacher_0`), so that trackers put the members of one
measure side by side. `teachers/<name>` and `students/<name>` are of one role. `glossary.py` writes docs/metrics.md.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property

from ..run_files.layout import HISTORY_FILE


COMBINE = {
    "mean": "their mean: over rounds, TRL's own over steps",
    "sum": "their sum",
    "last": "the newest",
}

PLACEHOLDERS = {
    "member": (r"(?:teacher|student|agent)_\d+", "a member, as in `teacher_0`; a single agent is `agent_0`"),
    "teacher": (r"teacher_\d+", "a teacher"),
    "student": (r"student_\d+", "a student"),
    "solver": (r"(?:student|agent)_\d+", "a member that solves tasks"),
    "player": (r"(?:(?:teacher|student|agent)_\d+|base)", "a member, or the base model"),
    "role": (r"(?:teachers|students)", "`teachers` or `students`; a single agent counts as both"),
    "type": (r"[^/]+", "a task type"),
    "reason": (r"[^/]+", "a reason for refusal: `trl_populora.tasks.REASONS`, or one of the type's own `reasons`"),
    "function": (r"[^/]+", "a reward function"),
    "phase": (
        r"[^/]+",
        "a part of a round: `propose`, `verify`, `match`, `solve`, `judge`, `extra`, `learn`, `weights`",
    ),
    "status": (r"[^/]+", "how an execution ended (`trl_populora.executor.Status`)"),
    "measure": (r"[^/]+", "a measure of complexity (`TaskType.features`)"),
    "exam": (r"(?!(?:reward|rewards|founders|completions|clip_ratio|sampling)/)[^/]+", "an exam"),
    "group": (r"[^/]+", "a task type, subject or level of an exam"),
    "kind": (r"(?:mean|min|max)", "`mean`, `min` or `max`"),
}
"""Placeholder -> what it matches, and what it stands for."""

SELF_PLAY, DATASET = "self-play", "on a dataset"


@dataclass(frozen=True)
class Metric:
    """One entry of the registry.

    Attributes:
        name (`str`): As in `trainer.state.log_history`, with placeholders in braces.
        meaning (`str`): One sentence.
        unit (`str`): Unit or range.
        combine (`str`): How the values of a logging interval become one, a key of `COMBINE`.
        when (`str`): When it is there; empty for always.
        evaluated (`bool`): Whether evaluation on a dataset logs it as well, as `eval_<name>`.
    """

    name: str
    meaning: str
    unit: str = ""
    combine: str = "mean"
    when: str = ""
    evaluated: bool = False

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """What matches the names that this entry stands for."""
        parts = re.split(r"\{(\w+)\}", self.name)
        text = "".join(PLACEHOLDERS[part][0] if i % 2 else re.escape(part) for i, part in enumerate(parts))
        return re.compile(f"(?:eval_)?{text}" if self.evaluated else text)


MEMBER = {
    "reward": "reward",
    "validity": "validity",
    "solve_rate": "solve_rate",
    "fill_rate": "fill_rate",
    "solve_rate_filled": "solve_rate_filled",
    "length": "length",
    "mu": "rating/mu",
    "sigma": "rating/sigma",
    "grad_norm": "grad_norm",
    "version": "version",
    "delta_norm": "weights/delta_norm",
    "effective_rank": "weights/effective_rank",
    "rows": "compute/rows",
    "tokens": "compute/tokens",
    "prompt_tokens": "compute/prompt_tokens",
    "unlearned_rows": "compute/unlearned_rows",
    "updates": "compute/updates",
}
"""Field of a `MemberSummary` -> metric, logged as `<metric>/<member>`."""

ROLE = ("reward", "validity", "length", "mu", "grad_norm", "delta_norm", "effective_rank")
"""Fields whose mean over the members of a role is logged, as `<role>/<metric>`."""

_WEIGHED = "every `weight_metrics_interval` rounds"
_MATCHED = f"{SELF_PLAY}, once such tasks were played"
_MEASURED = f"{SELF_PLAY}, for types that measure it"
_PROBED = "at probes"
_EXAMS = "at probes, with exams in `probe_kwargs`"
_FOUNDERS = "at probes, with `founders` in `probe_kwargs`"
_CLIPPED = "with the losses `grpo`, `dr_grpo`, `dapo` and `luspo`"
_CORRECTED = "where the sampler reports log-probabilities, as vLLM does"
_END = "at the end of training"

# fmt: off
SECTIONS: dict[str, tuple[Metric, ...]] = {
    "The round": (
        Metric("round", "Number of the round, from 0.", "count", "last"),
        Metric("alarms",
            f"Signs of collapse; the words are in `{HISTORY_FILE}`, on the terminal and in the trackers.",
            "count", "sum"),
        Metric("solve_rate",
            "Share of matched attempts that solved their task: mean over task types of each type's newest rate, not "
            "older than one rotation of the types, ceil(types / `prompts_per_teacher`) rounds.",
            "0 to 1", when=_MATCHED),
        Metric("types/solve_rate/{type}", "The same of this round alone, one type.", "0 to 1", when=_MATCHED),
        Metric("fill_rate",
            "Share of members' attempts that were at tasks filled in from the buffer.", "0 to 1", when=SELF_PLAY),
        Metric("solve_rate_filled",
            "Share of those attempts that solved their task.",
            "0 to 1", when=f"{SELF_PLAY}, in rounds with filled-in tasks"),
        Metric("matches/played", "Pairings that played in the round.", "count", when=SELF_PLAY),
        Metric("matches/games",
            "Games that ratings have counted between the present members: attempts at each other's tasks.",
            "count", "last", SELF_PLAY),
        Metric("matches/student_wins", "Those of them that the student won.", "count", "last", SELF_PLAY),
        Metric("evolution/replaced", "Members that were replaced.", "count", "sum"),
        Metric("seconds/{phase}",
            "Wall-clock time of one part of a round; on a dataset there are `sample` and `learn`.", "s"),
        Metric("executor/{status}", "Executions of the round that ended so.", "count", when=SELF_PLAY),
    ),
    "Members": (
        Metric("reward/{member}",
            "Mean reward of the member's rows. With `solvable_rounds` a teacher's are those that it learns from now.",
            "reward", when="where a row of its has a reward", evaluated=True),
        Metric("validity/{member}",
            "Share of its proposals that became tasks, without those on which the executor failed.",
            "0 to 1", when=f"{SELF_PLAY}; of teachers"),
        Metric("solve_rate/{member}",
            "As `solve_rate`: of a student's attempts, or of the attempts at a teacher's tasks.",
            "0 to 1", when=_MATCHED),
        Metric("types/solve_rate/{type}/{member}", "The same of this round alone, one type.", "0 to 1", when=_MATCHED),
        Metric("fill_rate/{solver}", "As `fill_rate`, of one student.", "0 to 1", when=SELF_PLAY),
        Metric("solve_rate_filled/{solver}",
            "As `solve_rate_filled`, of one student.", "0 to 1", when=f"{SELF_PLAY}, in rounds with filled-in tasks"),
        Metric("length/{member}", "Mean length of the completions that it wrote.", "tokens"),
        Metric("rating/mu/{member}",
            "Rating: TrueSkill in self-play; on a dataset its mean reward over the last `evolution_interval` rounds.",
            "points; on a dataset reward", "last"),
        Metric("rating/sigma/{member}",
            "Uncertainty of the rating; on a dataset the standard error of that mean.", "as `rating/mu`", "last"),
        Metric("version/{member}", "How often the slot's member has been replaced.", "count", "last"),
        Metric("grad_norm/{member}",
            "Norm of its gradient before clipping; none in a step for which the guard held it back.", "0 or more"),
        Metric("weights/delta_norm/{member}",
            "Frobenius norm of its update dW over all adapted matrices, before replacement.",
            "0 or more", "last", _WEIGHED),
        Metric("weights/effective_rank/{member}",
            "Exp of the entropy of the normalised singular values of dW, mean over matrices.",
            "1 to r", "last", _WEIGHED),
        Metric("compute/rows/{member}", "Rows that it learned from: completions with a reward.", "count"),
        Metric("compute/tokens/{member}", "Completion tokens of these rows.", "tokens"),
        Metric("compute/prompt_tokens/{member}", "Prompt tokens of these rows.", "tokens"),
        Metric("compute/unlearned_rows/{member}",
            "Completions that it never learns from: left out by `balance_rows`, extra attempts, without a reward, or "
            "a predecessor's. Rows that wait (`solvable_rounds`) count when their time has come.", "count"),
        Metric("compute/updates/{member}",
            "Optimizer steps that it took; 0 without rows to learn from, or when the guard held it back.", "count"),
    ),
    "Roles": (
        Metric("{role}/reward",
            "Mean total reward: in self-play over the role's rows, on a dataset over members.", "reward"),
        Metric("{role}/reward_std",
            "Standard deviation of the total reward over the role's rows.", "0 or more", when=SELF_PLAY),
        Metric("{role}/zero_std_groups",
            "Share of groups of `num_generations` rows without any difference in reward: the group baseline leaves "
            "nothing to learn from them.", "0 to 1", when=SELF_PLAY),
        Metric("{role}/rewards/{function}/mean",
            "Mean reward of one function over the role's rows.",
            "reward", when=f"{SELF_PLAY}, with several reward functions"),
        Metric("{role}/rewards/{function}/std",
            "Standard deviation of the same.", "0 or more", when=f"{SELF_PLAY}, with several reward functions"),
        Metric("teachers/validity", "Mean of `validity` over teachers.", "0 to 1", when=SELF_PLAY),
        Metric("{role}/length", "Mean of `length` over members.", "tokens"),
        Metric("{role}/rating/mu",
            "Mean of `rating/mu` over members; in self-play it says little, because what one side wins the other "
            "loses.", "as `rating/mu`", "last"),
        Metric("{role}/rating/dispersion",
            "Standard deviation (divided by N) of `rating/mu` over members; equal members still differ by about their "
            "`rating/sigma`.", "points", "last", f"{SELF_PLAY}, roles of two or more"),
        Metric("{role}/solve_rate_dispersion",
            "Standard deviation (divided by N) of `solve_rate` over members.",
            "0 to 0.5", when=f"{SELF_PLAY}, where two members have one"),
        Metric("{role}/grad_norm", "Mean of `grad_norm` over members.", "0 or more"),
        Metric("{role}/refused/{reason}",
            "Completions of the role that were refused for this reason.",
            "count", when=f"{SELF_PLAY}, in rounds with such a refusal"),
        Metric("{role}/weights/delta_norm",
            "Mean of `weights/delta_norm` over members.", "0 or more", "last", _WEIGHED),
        Metric("{role}/weights/effective_rank",
            "Mean of `weights/effective_rank` over members.", "1 to r", "last", _WEIGHED),
        Metric("{role}/weights/cosine_{kind}",
            "Cosine between the updates dW of two members, over all pairs of the role.",
            "-1 to 1", "last", f"{_WEIGHED}, roles of two or more"),
    ),
    "Pairs": (
        Metric("pairs/solve_rate/{teacher}/{student}",
            "Share of the student's attempts at the teacher's tasks of this round that solved them.",
            "0 to 1", when=f"{SELF_PLAY}, of pairs that met in the round"),
        Metric("pairs/solve_rate_window/{teacher}/{student}",
            "The same over the last 10 rounds in which the two met, none older than 50 rounds.",
            "0 to 1", "last", f"{SELF_PLAY}, of pairs that met in the round"),
        Metric("rating/residual",
            "What ratings miss: root mean square over pairs of observed minus predicted win rate. Chance gives up to "
            "0.5 / √games.", "0 to 1", "last", f"{SELF_PLAY}, once a pair has played 32 games"),
    ),
    "Tasks": (
        Metric("tasks/unsolved",
            "Share of valid proposals that their student never solved, of those that were played.",
            "0 to 1", when=f"{SELF_PLAY}, in rounds with such proposals"),
        Metric("tasks/unsolved_reward",
            "Part of the teachers' positive rewards that such proposals earned, of those that they learn from now.",
            "0 to 1", when=f"{SELF_PLAY}, where teachers earned any"),
        Metric("tasks/never_solved",
            "Share of the proposed tasks in the buffer that somebody tried and nobody ever solved.",
            "0 to 1", "last", f"{SELF_PLAY}, once such tasks were tried"),
        Metric("tasks/given_up",
            "Proposed tasks that are not shown or played any more (`max_unsolved_tries`).",
            "count", "last", SELF_PLAY),
        Metric("tasks/duplicates", "Share of proposals refused because the task exists.", "0 to 1", when=SELF_PLAY),
        Metric("tasks/extra_rows",
            "Extra attempts, from which nobody learns (`solvable_attempts`).", "count", when=SELF_PLAY),
        Metric("complexity/{measure}",
            "Mean over the programs that teachers wrote themselves, in the round's valid proposals.",
            "nodes, lines, bits, …", when=_MEASURED),
        Metric("coverage/filled",
            "Cells of the task space that such programs have visited, ever.", "cells", "last", _MEASURED),
        Metric("coverage/filled/{teacher}",
            "Those that this teacher has visited, first or not.", "cells", "last", _MEASURED),
        Metric("coverage/new", "Cells that were visited for the first time.", "cells", "sum", _MEASURED),
    ),
    "Probes": (
        Metric("eval_{exam}/{player}",
            "Share of the exam's questions that were answered right.", "0 to 1", "last", _EXAMS),
        Metric("eval_{exam}/mean", "Mean of that over those who solve tasks.", "0 to 1", "last", _EXAMS),
        Metric("eval_{exam}/{group}/mean", "The same of one task type, subject or level.", "0 to 1", "last", _EXAMS),
        Metric("eval_founders/solved/{student}",
            "Share of the founder teachers' tasks that the student solves.", "0 to 1", "last", _FOUNDERS),
        Metric("eval_founders/proposals/{teacher}",
            "Proposals of the teacher to the founders' prompts that were judged.", "count", "last", _FOUNDERS),
        Metric("eval_founders/valid/{teacher}", "Share of them that are valid.", "0 to 1", "last", _FOUNDERS),
        Metric("eval_founders/tasks/{teacher}", "Different tasks among them.", "count", "last", _FOUNDERS),
        Metric("eval_founders/unsolved/{teacher}",
            "Share of the founder students' answers to these tasks that do not solve them.",
            "0 to 1", "last", _FOUNDERS),
        Metric("eval_founders/unsolved_now/{teacher}", "The same of today's students.", "0 to 1", "last", _FOUNDERS),
        Metric("eval_probe_seconds", "What the probe took.", "s", "last", _PROBED),
    ),
    "TRL's own": (
        Metric("loss", "Loss; its value says nothing about progress, only its gradient counts.", "-", evaluated=True),
        Metric("grad_norm",
            "Norm of all members' gradients together, before clipping, in the newest step.", "0 or more", "last"),
        Metric("learning_rate", "Learning rate of the first member now; members may differ.", "-", "last"),
        Metric("num_tokens", "Prompt and completion tokens of all rows so far.", "tokens", "last", evaluated=True),
        Metric("entropy",
            "Mean entropy of the members' next-token distributions, over the tokens of the update's rows. With `beta` "
            "0 and a loss by tokens (dapo, cispo, vespo) these are the rows that have an advantage.",
            "nats", evaluated=True),
        Metric("kl",
            "Mean estimate of the divergence of members from the base, over all tokens.",
            "nats", when="`beta` > 0", evaluated=True),
        Metric("clip_ratio/low_mean",
            "Share of tokens whose ratio was clipped from below.", "0 to 1", when=_CLIPPED, evaluated=True),
        Metric("clip_ratio/low_min", "The least such share of a row.", "0 to 1", when=_CLIPPED, evaluated=True),
        Metric("clip_ratio/high_mean",
            "Share of tokens whose ratio was clipped from above.", "0 to 1", when=_CLIPPED, evaluated=True),
        Metric("clip_ratio/high_max", "The largest such share of a row.", "0 to 1", when=_CLIPPED, evaluated=True),
        Metric("clip_ratio/region_mean",
            "Share of tokens whose ratio was clipped.", "0 to 1", when=_CLIPPED, evaluated=True),
        Metric("cispo_clip_ratio",
            "Share of tokens whose ratio was clipped.", "0 to 1", when="`loss_type: cispo`", evaluated=True),
        Metric("vespo/phi_seq_mean",
            "Mean weight of a sequence in the loss.", "0 or more", when="`loss_type: vespo`", evaluated=True),
        Metric("completions/{kind}_length",
            "Length of the rows that are learned from; of both roles in self-play, as a measure of cost "
            "(`teachers/length` and `students/length` are of each role).", "tokens", evaluated=True),
        Metric("completions/{kind}_terminated_length",
            "The same of rows that ended by themselves; 0 if none did.", "tokens", evaluated=True),
        Metric("completions/clipped_ratio",
            "Share of these rows, of both roles, that were cut off at `max_completion_length`.",
            "0 to 1", evaluated=True),
        Metric("sampling/sampling_logp_difference/{kind}",
            "Difference between the sampler's log-probability of a token and the trainer's.",
            "nats", when=_CORRECTED, evaluated=True),
        Metric("sampling/importance_sampling_ratio/{kind}",
            "Weight that corrects for this difference, of a token or a row.",
            "0 or more", when=_CORRECTED, evaluated=True),
        Metric("sampling/cut/{member}",
            "Share of its tokens whose weight was masked or cut off at a bound (`vllm_importance_sampling_mode`).",
            "0 to 1", when=_CORRECTED, evaluated=True),
        Metric("reward", "Mean total reward of all rows.", "reward", when=DATASET, evaluated=True),
        Metric("reward_std", "Standard deviation of the same.", "0 or more", when=DATASET, evaluated=True),
        Metric("frac_reward_zero_std",
            "Share of groups without any difference in reward.", "0 to 1", when=DATASET, evaluated=True),
        Metric("rewards/{function}/mean", "Mean reward of one function.", "reward", when=DATASET, evaluated=True),
        Metric("rewards/{function}/std", "Standard deviation of the same.", "0 or more", when=DATASET, evaluated=True),
        Metric("step_time",
            "Forward and backward passes of an optimizer step, with the round where one was played.", "s"),
        Metric("epoch", "Share of the dataset that was seen; in self-play it means nothing.", "-", "last"),
        Metric("step", "Optimizer step; trackers take it as their x axis.", "count", "last"),
        Metric("num_input_tokens_seen", "As `num_tokens`.", "tokens", "last", "`include_num_input_tokens_seen`"),
        Metric("train_tokens_per_second",
            "Tokens of all rows per second of training.", "1/s", "last", "`include_num_input_tokens_seen`"),
        Metric("train_loss", "Mean loss of the training.", "-", "last", _END),
        Metric("train_runtime", "Wall-clock time of the training.", "s", "last", _END),
        Metric("train_samples_per_second", "Rows per second.", "1/s", "last", _END),
        Metric("train_steps_per_second", "Optimizer steps per second.", "1/s", "last", _END),
        Metric("total_flos", "Not counted by TRL: 0.", "-", "last", _END),
        Metric("eval_runtime", "Wall-clock time of the evaluation.", "s", "last", "with an `eval_dataset`"),
        Metric("eval_samples_per_second",
            "Rows per second of the evaluation.", "1/s", "last", "with an `eval_dataset`"),
        Metric("eval_steps_per_second",
            "Batches per second of the evaluation.", "1/s", "last", "with an `eval_dataset`"),
    ),
}
# fmt: on
"""Heading -> its metrics."""

METRICS = tuple(metric for own in SECTIONS.values() for metric in own)


def matching(name: str) -> list[Metric]:
    """Entries that stand for this name; in a complete registry exactly one for everything that a run logs."""
    return [metric for metric in METRICS if metric.pattern.fullmatch(name)]


@cache
def combination(name: str) -> str:
    """How the values of an interval become one, a key of `COMBINE`; `"mean"` for what the registry does not know."""
    return next((metric.combine for metric in matching(name)), "mean")


def overlays() -> Iterator[tuple[str, str, str]]:
    """Measures that several have (members, pairs, phases): heading, title, and a pattern of the names in one chart."""
    for heading, metrics in SECTIONS.items():
        for metric in metrics:
            if "/{" in metric.name and not metric.name.startswith(("{role}", "eval_")):
                yield heading, re.sub("[{}]", "", metric.name), metric.pattern.pattern.removeprefix("(?:eval_)?")
