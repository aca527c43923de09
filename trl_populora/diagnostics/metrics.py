"""The registry of metrics: every number that a run logs, its meaning, and how the values of an interval are combined.

A name starts with what is measured and ends with the member (`reward/teacher_0`), so that trackers show the members of
one measurement side by side. `teachers/<name>` and `students/<name>` describe one role. `glossary.py` writes
docs/metrics.md.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property

from ..run_files.layout import HISTORY_FILE


COMBINE = {
    "mean": "the mean, over rounds; for TRL's own metrics, over steps, and in an evaluation over batches, of which "
    "the last may be smaller",
    "sum": "the sum",
    "last": "the newest value",
}

PLACEHOLDERS = {
    "member": (r"(?:teacher|student|agent)_\d+", "a member, as in `teacher_0`; a single agent is `agent_0`"),
    "teacher": (r"teacher_\d+", "a teacher"),
    "student": (r"student_\d+", "a student"),
    "proposer": (r"(?:teacher|agent)_\d+", "a member that proposes tasks"),
    "solver": (r"(?:student|agent)_\d+", "a member that solves tasks"),
    "player": (r"(?:(?:teacher|student|agent)_\d+|base)", "a member, or the base model"),
    "role": (r"(?:teachers|students)", "`teachers` or `students`; a single agent counts as both"),
    "type": (r"[^/]+", "a task type"),
    "reason": (r"[^/]+", "a reason for refusal: `trl_populora.tasks.REASONS`, or one of the type's own `reasons`"),
    "function": (r"[^/]+", "a reward function"),
    "phase": (
        r"[^/]+",
        "a part of a round: `propose`, `verify`, `match`, `solve`, `judge`, `extra`, `learn`, `recombine`, `weights`",
    ),
    "status": (r"[^/]+", "how an execution ended (`trl_populora.executor.Status`)"),
    "measure": (r"[^/]+", "a measure of complexity (`TaskType.features`)"),
    "exam": (r"(?!(?:reward|rewards|founders|completions|clip_ratio|sampling)/)[^/]+", "an exam"),
    "group": (r"[^/]+", "a task type, subject or level of an exam"),
    "kind": (r"(?:mean|min|max)", "`mean`, `min` or `max`"),
}
"""Placeholder -> the pattern that it matches, and its meaning."""

SELF_PLAY, DATASET = "self-play", "on a dataset"


@dataclass(frozen=True)
class Metric:
    """One entry of the registry.

    Attributes:
        name (`str`): As in `trainer.state.log_history`, with placeholders in braces.
        meaning (`str`): One or two sentences.
        unit (`str`): Unit or range.
        combine (`str`): How the values of a logging interval become one, a key of `COMBINE`.
        when (`str`): When it is logged; empty for always.
        evaluated (`bool`): Whether evaluation on a dataset logs it as well, as `eval_<name>`.
        zero (`bool`): Whether it is 0 in a round without it.
    """

    name: str
    meaning: str
    unit: str = ""
    combine: str = "mean"
    when: str = ""
    evaluated: bool = False
    zero: bool = False

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Pattern of all names of this entry."""
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
    "distinct": "distinct",
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

ROLE = ("reward", "validity", "length", "distinct", "mu", "grad_norm", "delta_norm", "effective_rank")
"""Fields whose mean over the members of a role is logged, as `<role>/<metric>`."""

_WEIGHED = "every `weight_metrics_interval` rounds"
_MATCHED = f"{SELF_PLAY}, after such tasks were played"
MEASURED = f"{SELF_PLAY}, for task types that measure it"
_PROBED = "at probes"
_EXAMS = "at probes, with exams in `probe_kwargs`"
_FOUNDERS = "at probes, with `founders` in `probe_kwargs`"
_OF_ROWS = "; with `importance_sampling_level: sequence`, of these rows, also of those without a token that counts"
_CLIPPED = "with the losses `grpo`, `dr_grpo`, `dapo` and `luspo`"
_CORRECTED = "if the sampler reports log-probabilities, as vLLM does"
_END = "at the end of training"
TWO = "roles of two or more"

# fmt: off
SECTIONS: dict[str, tuple[Metric, ...]] = {
    "The round": (
        Metric("round", "Number of the round, from 0.", "count", "last"),
        Metric("alarms",
            f"Number of alarms (signs of collapse). Their texts are in `{HISTORY_FILE}`, on the terminal (of a "
            "script: in its log) and in the trackers.",
            "count", "sum"),
        Metric("solve_rate",
            "Share of attempts at the teachers' tasks that solved their task. It is the mean over task types of each "
            "type's newest rate within one rotation of the types, ceil(types / `prompts_per_teacher`) rounds.",
            "0 to 1", when=_MATCHED),
        Metric("types/solve_rate/{type}", "`solve_rate` of one type in this round only.", "0 to 1", when=_MATCHED),
        Metric("fill_rate",
            "Share of attempts at fill-ins: tasks from the buffer that replace invalid proposals. Of all attempts of "
            "the members, also of those at champions' tasks.",
            "0 to 1", when=SELF_PLAY),
        Metric("solve_rate_filled",
            "Share of attempts at fill-ins that solved their task.",
            "0 to 1", when=f"{SELF_PLAY}, in rounds with fill-ins"),
        Metric("matches/played",
            "Different pairs of a teacher and a student that met in the round, also those without any valid task; "
            "without pairings with champions.",
            "count", when=SELF_PLAY),
        Metric("matches/games",
            "Rated games between the current members so far. A game is an attempt at a task of a teacher.",
            "count", "last", SELF_PLAY),
        Metric("matches/student_wins", "Games of `matches/games` that the student won.", "count", "last", SELF_PLAY),
        Metric("evolution/replaced", "Members that were replaced.", "count", "sum"),
        Metric("evolution/recombined", "Members that moved to the mean of their role.", "count", "sum"),
        Metric("seconds/{phase}",
            "Wall-clock time of one part of a round. On a dataset, the parts are `sample` and `learn`.",
            "s", when="in rounds with this part", zero=True),
        Metric("compute/guest_rows",
            "Completions of champions of the past (`hall_of_fame_probability`), from which nobody learns.", "count",
            when=f"{SELF_PLAY}, in rounds with a champion", zero=True),
        Metric("executor/{status}",
            "Executions of a round that ended with this status.",
            "count", when=f"{SELF_PLAY}, in rounds with such an execution", zero=True),
    ),
    "Members": (
        Metric("reward/{member}",
            "Mean reward of the member's rows. In self-play, it is the reward of the game alone, over all attempts "
            "and proposals, also over attempts that `balance_rows` does not choose; a single agent's are of both "
            "roles. With `solvable_rounds`, a teacher's rows are those that it learns from now.",
            "reward", when="if one of its rows has a reward", evaluated=True),
        Metric("validity/{proposer}",
            "Share of its proposals that became tasks. Proposals on which the executor failed are not counted.",
            "0 to 1", when=SELF_PLAY),
        Metric("solve_rate/{member}",
            "`solve_rate` of a student's attempts, or of the attempts at a teacher's tasks.",
            "0 to 1", when=_MATCHED),
        Metric("types/solve_rate/{type}/{member}",
            "`solve_rate/{member}` of one type in this round only.", "0 to 1", when=_MATCHED),
        Metric("fill_rate/{solver}", "`fill_rate` of one student.", "0 to 1", when=SELF_PLAY),
        Metric("solve_rate_filled/{solver}",
            "`solve_rate_filled` of one student.", "0 to 1", when=f"{SELF_PLAY}, in rounds with fill-ins"),
        Metric("length/{member}", "Mean length of the completions that it wrote, without extra attempts.", "tokens"),
        Metric("distinct/{member}",
            "How different its completions to one prompt are: (different texts - 1) / (completions - 1), mean over "
            "prompts. 0: all are the same, so sampling shows nothing new. Without extra attempts; of a single agent, "
            "of its attempts.",
            "0 to 1", when="if a prompt has two completions of the member"),
        Metric("rating/mu/{member}",
            "Rating. In self-play it is TrueSkill. On a dataset it is the mean reward over the last "
            "`evolution_interval` rounds.",
            "points; on a dataset reward", "last"),
        Metric("rating/sigma/{member}",
            "Uncertainty of the rating. On a dataset it is the standard error of that mean; 0 if there is only one "
            "round, as for a child, whose parents' mean counts as one.",
            "as `rating/mu`", "last"),
        Metric("version/{member}",
            "Number of times that the member of this slot (place in the population) was replaced.", "count", "last"),
        Metric("grad_norm/{member}",
            "Norm of its gradient before clipping, as a mean over the steps of the round. Not logged if it is not "
            "finite, if the member is frozen, or if none of its rows has a reward.",
            "0 or more"),
        Metric("weights/delta_norm/{member}",
            "Frobenius norm of its update dW over all adapted matrices, before replacement.",
            "0 or more", "last", _WEIGHED),
        Metric("weights/effective_rank/{member}",
            "Exponential of the entropy of the normalised singular values of dW, as a mean over matrices.",
            "1 to r; 0 without an update", "last", _WEIGHED),
        Metric("compute/rows/{member}",
            "Rows that it learned from: completions with a reward, also those without an advantage.", "count"),
        Metric("compute/tokens/{member}", "Completion tokens of these rows.", "tokens"),
        Metric("compute/prompt_tokens/{member}", "Prompt tokens of these rows.", "tokens"),
        Metric("compute/unlearned_rows/{member}",
            "Completions that it never learns from: not chosen by `balance_rows`, extra attempts, rows without a "
            "reward, or rows of a replaced member. Rows that wait (`solvable_rounds`) are counted in a later round; "
            "those that still wait at the end of a run are in no number.",
            "count"),
        Metric("compute/updates/{member}",
            "Optimizer steps that it took. It is 0 if no row of it has a reward, without a finite gradient, or if the "
            "member is frozen.",
            "count"),
    ),
    "Roles": (
        Metric("{role}/reward",
            "Mean total reward, also of your own reward functions. In self-play it is over the rows that the role "
            "learns from, on a dataset over members.", "reward"),
        Metric("{role}/reward_std",
            "Standard deviation of the total reward over these rows.", "0 or more", when=SELF_PLAY),
        Metric("{role}/zero_std_groups",
            "Share of groups of `num_generations` rows in which all rewards are equal. With the group baseline, "
            "nothing "
            "is learned from such groups.", "0 to 1", when=SELF_PLAY),
        Metric("{role}/rewards/{function}/mean",
            "Mean reward of one function over these rows.",
            "reward", when=f"{SELF_PLAY}, with several reward functions"),
        Metric("{role}/rewards/{function}/std",
            "Standard deviation of the reward of one function.",
            "0 or more", when=f"{SELF_PLAY}, with several reward functions"),
        Metric("teachers/validity", "Mean of `validity` over teachers.", "0 to 1", when=SELF_PLAY),
        Metric("{role}/length",
            "Mean length of the role's completions, without extra attempts; on a dataset, mean of `length` over "
            "members.",
            "tokens"),
        Metric("{role}/distinct", "Mean of `distinct` over members; not of a single agent as a teacher.", "0 to 1",
            when="if a member has one"),
        Metric("{role}/rating/mu",
            "Mean of `rating/mu` over members. In self-play it says little, because one side wins what the other side "
            "loses. For a single agent it is its rating as a student.", "as `rating/mu`", "last"),
        Metric("{role}/rating/dispersion",
            "Standard deviation (with divisor N) of `rating/mu` over members. Equally good members still differ by "
            "about "
            "their `rating/sigma`.", "points", "last", f"{SELF_PLAY}, {TWO}"),
        Metric("{role}/solve_rate_dispersion",
            "Standard deviation (with divisor N) of `solve_rate` over members.",
            "0 to 0.5", when=f"{SELF_PLAY}, {TWO}, if two members have one"),
        Metric("{role}/grad_norm", "Mean of `grad_norm` over members.", "0 or more"),
        Metric("{role}/refused/{reason}",
            "Completions of the role that were refused for this reason, without extra attempts.",
            "count", when=f"{SELF_PLAY}, in rounds with such a refusal", zero=True),
        Metric("{role}/weights/delta_norm",
            "Mean of `weights/delta_norm` over members.", "0 or more", "last", _WEIGHED),
        Metric("{role}/weights/effective_rank",
            "Mean of `weights/effective_rank` over members.", "1 to r; 0 without an update", "last", _WEIGHED),
        Metric("{role}/weights/cosine_{kind}",
            "Cosine between the updates dW of two members, over all pairs of the role; 0 if one has no update.",
            "-1 to 1", "last", f"{_WEIGHED}, {TWO}"),
    ),
    "Pairs": (
        Metric("pairs/solve_rate/{teacher}/{student}",
            "Share of the student's attempts at the teacher's tasks in this round that solved their task.",
            "0 to 1", when=f"{SELF_PLAY}, for pairs that met in the round"),
        Metric("pairs/solve_rate_window/{teacher}/{student}",
            "`pairs/solve_rate` over the last 10 rounds in which the two met. Rounds older than 50 rounds are not "
            "used.",
            "0 to 1", "last", f"{SELF_PLAY}, for pairs that met in the round"),
        Metric("rating/residual",
            "Error of the ratings: root mean square over pairs of the observed minus the predicted win rate. Each "
            "round is predicted by the ratings before it; earlier meetings of a pair fade (to 1 / e after five), so "
            "about ten count. Chance alone gives up to 0.5 / √(10 games of a meeting), and more if attempts at one "
            "task are alike: it does not go to 0 in a long run.",
            "0 to 1", "last", f"{SELF_PLAY}, after a pair has played 32 games"),
    ),
    "Tasks": (
        Metric("tasks/unsolved",
            "Share of the played valid proposals that their student did not solve in any attempt.",
            "0 to 1", when=f"{SELF_PLAY}, in rounds with such proposals"),
        Metric("tasks/unsolved_reward",
            "Share of the teachers' positive rewards that such proposals earned, in the rows that they learn from "
            "now.",
            "0 to 1", when=f"{SELF_PLAY}, if teachers earned any"),
        Metric("tasks/never_solved",
            "Share of the proposed tasks in the buffer that were attempted but never solved.",
            "0 to 1", "last", f"{SELF_PLAY}, after such tasks were attempted"),
        Metric("tasks/given_up",
            "Proposed tasks that left play because nobody solved them (`max_unsolved_tries`).",
            "count", "last", SELF_PLAY),
        Metric("tasks/duplicates",
            "Share of proposals that were refused because the task exists already.", "0 to 1", when=SELF_PLAY),
        Metric("tasks/similarity",
            "Mean similarity of two valid proposals of one type in this round: of the different parts (statements of "
            "a program) of both, the share that both have. 1: all are the same.",
            "0 to 1", when=f"{SELF_PLAY}, in rounds with two such proposals"),
        Metric("tasks/extra_rows",
            "Number of extra attempts (`solvable_attempts`). Nobody learns from them.", "count", when=SELF_PLAY),
        Metric("complexity/{measure}",
            "Mean complexity of the programs that teachers wrote themselves, in the round's valid proposals.",
            "nodes, lines, bits, …", when=MEASURED),
        Metric("coverage/filled",
            "Cells of the task space that such programs have visited since the start of the run.",
            "cells", "last", MEASURED),
        Metric("coverage/filled/{teacher}",
            "Cells that the teachers of this slot have visited.", "cells", "last", MEASURED),
        Metric("coverage/new", "Cells that were visited for the first time in this round.", "cells", "sum", MEASURED),
    ),
    "Probes": (
        Metric("eval_{exam}/{player}",
            "Share of the exam's questions that were answered right.", "0 to 1", "last", _EXAMS),
        Metric("eval_{exam}/mean",
            "Mean of `eval_{exam}/{player}` over students, or the value of the single agent.",
            "0 to 1", "last", _EXAMS),
        Metric("eval_{exam}/{group}/mean",
            "`eval_{exam}/mean` of one task type, subject or level.", "0 to 1", "last", _EXAMS),
        Metric("eval_founders/solved/{student}",
            "Share of the founder teachers' tasks that the student solves.", "0 to 1", "last", _FOUNDERS),
        Metric("eval_founders/proposals/{teacher}",
            "Judged proposals of the teacher to the prompts of the founders (the first members).",
            "count", "last", _FOUNDERS),
        Metric("eval_founders/valid/{teacher}",
            "Share of these proposals that are valid.", "0 to 1", "last", _FOUNDERS),
        Metric("eval_founders/tasks/{teacher}",
            "Number of different valid tasks among them.", "count", "last", _FOUNDERS),
        Metric("eval_founders/unsolved/{teacher}",
            "Share of the founder students' answers to these tasks that do not solve them.",
            "0 to 1", "last", _FOUNDERS),
        Metric("eval_founders/unsolved_now/{teacher}",
            "Share of the current students' answers to these tasks that do not solve them.",
            "0 to 1", "last", _FOUNDERS),
        Metric("eval_probe_seconds", "Duration of the probe.", "s", "last", _PROBED),
    ),
    "TRL's own": (
        Metric("loss", "Loss. Its value does not show progress; only its gradient matters.", "-", evaluated=True),
        Metric("grad_norm",
            "Norm of all members' gradients together, before clipping, in the newest step.", "0 or more", "last"),
        Metric("learning_rate",
            "Current learning rate of the first member. Other members may have another one.", "-", "last"),
        Metric("num_tokens",
            "Prompt and completion tokens of the rows of all batches so far: not of champions' rows, of extra "
            "attempts (`tasks/extra_rows`), or of attempts that `balance_rows` does not choose.",
            "tokens", "last", evaluated=True),
        Metric("entropy",
            "Mean entropy of the members' next-token distributions, over the tokens of the rows in the update. With "
            "`beta` 0 and a loss by tokens (dapo, cispo, vespo) these are the rows that have an advantage, and a few "
            "others, the shortest: one of each member without such a row, on each process, and where the passes of "
            "`per_device_train_batch_size` would not be full. So it changes with the processes and passes, and says "
            "little in a round in which hardly a row has an advantage.",
            "nats", evaluated=True),
        Metric("kl",
            "Mean estimate of the KL divergence of members from the base, over all tokens (in an evaluation: over "
            "batches).",
            "nats", when="`beta` > 0", evaluated=True),
        Metric("clip_ratio/low_mean",
            f"Share of tokens whose ratio was clipped from below, in the rows that `entropy` covers{_OF_ROWS}.",
            "0 to 1", when=_CLIPPED, evaluated=True),
        Metric("clip_ratio/low_min",
            "The smallest such share in a row, as a mean over micro-batches.",
            "0 to 1", when=_CLIPPED, evaluated=True),
        Metric("clip_ratio/high_mean",
            f"Share of tokens whose ratio was clipped from above, in the rows that `entropy` covers{_OF_ROWS}.",
            "0 to 1", when=_CLIPPED, evaluated=True),
        Metric("clip_ratio/high_max",
            "The largest such share in a row, as a mean over micro-batches.",
            "0 to 1", when=_CLIPPED, evaluated=True),
        Metric("clip_ratio/region_mean",
            f"Share of tokens whose ratio was clipped, in the rows that `entropy` covers{_OF_ROWS}.",
            "0 to 1", when=_CLIPPED, evaluated=True),
        Metric("cispo_clip_ratio",
            "Share of tokens whose ratio was clipped, in the rows that `entropy` covers.",
            "0 to 1", when="`loss_type: cispo`", evaluated=True),
        Metric("vespo/phi_seq_mean",
            "Mean weight of a sequence in the loss, in the rows that `entropy` covers.",
            "0 or more", when="`loss_type: vespo`", evaluated=True),
        Metric("completions/{kind}_length",
            "Length of the rows of the batch (also of those without a reward). In self-play it covers both roles and "
            "measures cost "
            "(`teachers/length` and `students/length` are the lengths of each role).", "tokens", evaluated=True),
        Metric("completions/{kind}_terminated_length",
            "`completions/{kind}_length` of completions that were not cut off; 0 if there are none.",
            "tokens", evaluated=True),
        Metric("completions/clipped_ratio",
            "Share of these completions, of both roles, that were cut off at `max_completion_length`.",
            "0 to 1", evaluated=True),
        Metric("sampling/sampling_logp_difference/{kind}",
            "Difference between the sampler's log-probability of a token and the trainer's.",
            "nats", when=_CORRECTED, evaluated=True),
        Metric("sampling/importance_sampling_ratio/{kind}",
            "Weight of a token or a row that corrects for this difference.",
            "0 or more", when=_CORRECTED, evaluated=True),
        Metric("sampling/cut/{member}",
            "Share of its tokens whose weight was masked or cut off at a bound (`vllm_importance_sampling_mode`).",
            "0 to 1", when=_CORRECTED, evaluated=True),
        Metric("reward", "Mean total reward of all rows.", "reward", when=DATASET, evaluated=True),
        Metric("reward_std", "Standard deviation of the total reward.", "0 or more", when=DATASET, evaluated=True),
        Metric("frac_reward_zero_std",
            "Share of groups in which all rewards are equal.", "0 to 1", when=DATASET, evaluated=True),
        Metric("rewards/{function}/mean", "Mean reward of one function.", "reward", when=DATASET, evaluated=True),
        Metric("rewards/{function}/std",
            "Standard deviation of the reward of one function.", "0 or more", when=DATASET, evaluated=True),
        Metric("step_time",
            "Time of the forward and backward passes of an optimizer step, including the round if one was played.",
            "s"),
        Metric("epoch", "Share of the dataset that was seen. In self-play it has no meaning.", "-", "last"),
        Metric("step", "Optimizer step. Trackers use it as the x axis.", "count", "last"),
        Metric("num_input_tokens_seen",
            "The same as `num_tokens`.", "tokens", "last", "`include_num_input_tokens_seen`"),
        Metric("train_tokens_per_second",
            "Such tokens per second of training.", "1/s", "last", "`include_num_input_tokens_seen`"),
        Metric("train_loss", "Mean loss over the training; after a resume, since then.", "-", "last", _END),
        Metric("train_runtime", "Wall-clock time of the training; after a resume, since then.", "s", "last", _END),
        Metric("train_samples_per_second", "Rows per second.", "1/s", "last", _END),
        Metric("train_steps_per_second", "Optimizer steps per second.", "1/s", "last", _END),
        Metric("total_flos", "Always 0, because TRL does not count it.", "-", "last", _END),
        Metric("eval_runtime", "Wall-clock time of the evaluation.", "s", "last", "with an `eval_dataset`"),
        Metric("eval_samples_per_second",
            "Prompts per second of the evaluation, each with `num_generations` rows.",
            "1/s", "last", "with an `eval_dataset`"),
        Metric("eval_steps_per_second",
            "Batches per second of the evaluation, divided by `num_generations`, as TRL counts.",
            "1/s", "last", "with an `eval_dataset`"),
    ),
}
# fmt: on
"""Heading -> its metrics."""

METRICS = tuple(metric for own in SECTIONS.values() for metric in own)


def matching(name: str) -> list[Metric]:
    """Entries for this name. A complete registry has exactly one for every name that a run logs."""
    return [metric for metric in METRICS if metric.pattern.fullmatch(name)]


@cache
def combination(name: str) -> str:
    """How the values of an interval become one, a key of `COMBINE`; `"mean"` for names not in the registry."""
    return next((metric.combine for metric in matching(name)), "mean")


@cache
def is_zero_without(name: str, *, self_play: bool) -> bool:
    """Whether this metric is 0 in a round without it, such as the number of refusals for one reason."""
    return any(metric.zero and (self_play or SELF_PLAY not in metric.when) for metric in matching(name))


def overlays() -> Iterator[tuple[str, str, str]]:
    """Metrics of several members, pairs or phases: heading, title, and a pattern of the names in one chart."""
    for heading, metrics in SECTIONS.items():
        for metric in metrics:
            if "/{" in metric.name and not metric.name.startswith(("{role}", "eval_")):
                yield heading, re.sub("[{}]", "", metric.name), metric.pattern.pattern.removeprefix("(?:eval_)?")
