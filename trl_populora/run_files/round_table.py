"""The columns of `rounds/*.parquet`, the record of every completion of a run."""

ROUND_TABLE: dict[str, tuple[type, str]] = {
    "round": (int, "number of the round, from 0; of a `late` row that in which its member learns from it"),
    "step": (int, "optimizer step at which that round was played"),
    "kind": (
        str,
        "`learned`: a member's own row of this round. `guest`: written by a champion of the past. `extra`: an attempt "
        "that only shows whether a task can be solved. `late`: a proposal of an earlier round, a second "
        "time, with its final reward (`solvable_rounds`)",
    ),
    "member": (str, "the member that wrote the completion; for a champion its slot and version, `teacher_1@3`"),
    "role": (str, "`teacher` for proposals, `student` for attempts; in a run on a dataset, the member's role"),
    "version": (int, "version of the member that wrote it; null for champions and for late rows of a replaced member"),
    "type": (str, "task type of the proposal or of the attempted task"),
    "group": (
        int,
        "completions of one prompt by one member share a group, and all extra attempts at one task; numbered within "
        "round, kind and role",
    ),
    "task": (str, "id of the task; null for a proposal that is not valid"),
    "author": (str, "author of the task: a member, a champion, or `seed:<family>`"),
    "task_step": (int, "optimizer step at which the task was proposed; 0 for seed tasks"),
    "payload": (str, "the complete task as a JSON object: program, input, right output, or the fields of its type"),
    "opponent": (str, "the teacher of the game, for an attempt; null for fill-ins, extra attempts and proposals"),
    "fill_in": (
        bool,
        "whether the attempt is at a task from the buffer, which is not a game; null for extra attempts and proposals",
    ),
    "valid": (bool, "whether the proposal became a task, or the answer could be read"),
    "reason": (str, "short name of the reason if it is not valid; `infra_error`: the executor failed"),
    "detail": (str, "the reason in words"),
    "solved": (bool, "whether the attempt was judged right; null for proposals"),
    "reward": (
        float,
        "in self-play the reward of the game; on a dataset the weighted sum of the functions; null if it has none",
    ),
    "rewards": (
        str,
        "JSON object of rewards by reward function, if a run has several; the update uses their weighted sum",
    ),
    "advantage": (float, "the advantage in the update; null for rows that nobody learns from"),
    "learned": (bool, "whether its member learns from the row"),
    "prompt": (str, "the prompt: chat messages as JSON, or plain text if the dataset has plain text"),
    "prompt_tokens": (int, "length of the prompt in tokens"),
    "tokens": (int, "length of the completion in tokens"),
    "completion": (
        str,
        "the completion as text; several messages, or one with other parts (reasoning, tool calls), as JSON",
    ),
}
"""Column -> its type and its meaning. Every one but `round`, `step` and `member` may be null."""

COLUMNS: dict[str, type] = {name: kind for name, (kind, _) in ROUND_TABLE.items()}
