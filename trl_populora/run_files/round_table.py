"""The columns of `rounds/*.parquet`, the record of every completion of a run."""

ROUND_TABLE: dict[str, tuple[type, str]] = {
    "round": (int, "number of the round, from 0"),
    "step": (int, "optimizer step at which the round was played"),
    "kind": (
        str,
        "`learned`: a member's own row of this round. `guest`: written by a champion of the past. `extra`: an attempt "
        "that only shows whether a task can be solved. `late`: a proposal of an earlier round with its final reward "
        "(`solvable_rounds`)",
    ),
    "member": (str, "who wrote the completion; a champion is named by slot and version, `teacher_1@3`"),
    "role": (str, "`teacher` for proposals, `student` for attempts; in a run on a dataset the member's role"),
    "version": (int, "which occupant of the slot wrote it; null for champions, and for late rows of a predecessor"),
    "type": (str, "task type that was asked for, or of the task that was attempted"),
    "group": (int, "completions of one prompt by one member share a group; numbered within round, kind and role"),
    "task": (str, "id of the task; null for a proposal that is not valid"),
    "author": (str, "who proposed the task: a member, a champion, or `seed:<family>`"),
    "task_step": (int, "optimizer step at which the task was proposed; 0 for seeds"),
    "payload": (str, "the whole task as a JSON object: program, input, right output, or what else its type has"),
    "opponent": (str, "teacher that an attempt is a game against; null for fill-ins and proposals"),
    "fill_in": (bool, "whether an attempt is at a task from the buffer, which is no game; null for proposals"),
    "valid": (bool, "whether the proposal became a task, or the answer could be read"),
    "reason": (str, "short name of why it is not valid; `infra_error`: the executor failed, which is nobody's fault"),
    "detail": (str, "what exactly was refused, in words"),
    "solved": (bool, "whether the attempt was judged right; null for proposals"),
    "reward": (
        float,
        "in self-play the game's own reward; on a dataset the weighted sum of the functions; null if it has none",
    ),
    "rewards": (
        str,
        "JSON object from reward function to reward, where a run has several: the update uses their weighted sum",
    ),
    "advantage": (float, "what the update used; null for rows that nobody learns from"),
    "learned": (bool, "whether the row is one of those that its member learns from"),
    "prompt": (str, "the prompt: chat messages as JSON, or plain text where a dataset has plain text"),
    "prompt_tokens": (int, "length of the prompt in tokens"),
    "tokens": (int, "length of the completion in tokens"),
    "completion": (str, "the completion as text; several messages (tool calls) as JSON"),
}
"""Column -> its type and its meaning. Every one but `round`, `step` and `member` may be null."""

COLUMNS: dict[str, type] = {name: kind for name, (kind, _) in ROUND_TABLE.items()}
