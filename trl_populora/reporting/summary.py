"""What a run leaves its owner with, in words: where the adapters are, who won, what to do next."""

import os
from collections.abc import Sequence

from ..diagnostics import RoundSummary
from .family_tree import family_tree
from .tables import percent


def run_summary(folder: str, history: Sequence[RoundSummary], *, base: str) -> str:
    """Text for the end of a run.

    Args:
        folder (`str`): The run's `output_dir`, which holds the saved population.
        history (`Sequence[RoundSummary]`): Its rounds, at least one.
        base (`str`): Base model that the adapters belong to.
    """
    last = history[-1]
    names = [member.name for member in last.members]
    replaced = sum(len(summary.events) for summary in history)
    lines = [
        f"{len(history)} rounds, {len(names)} members, {replaced} replacements. Adapters on {base}:",
        *(f"  {os.path.join(folder, name)}" for name in names),
    ]
    for role, title in (("teacher", "Strongest teacher"), ("student", "Strongest student")):
        best = strongest(last, role)
        if best is not None:
            member = next(member for member in last.members if member.name == best)
            quality = (
                f"{percent(member.validity)} of its proposals valid"
                if role == "teacher"
                else f"{percent(member.solve_rate)} of its attempts solved"
            )
            lines.append(f"{title}: {best} (rating {member.mu:.1f}, {quality} in the last round)")
    if replaced:
        lines += ["Family tree (* lives):", *(f"  {line}" for line in family_tree(folder, names).splitlines())]
    lines += [
        "Next:",
        f"  populora report {folder}      plots and tables of this run",
        f"  populora play {folder}        one task proposed, verified and solved, to read",
        f"  populora evaluate {folder}    greedy pass@1 of every member on held-out tasks",
    ]
    return "\n".join(lines)


def strongest(summary: RoundSummary, role: str) -> str | None:
    """Member of a role with the highest lower bound of its rating, mu - 3 sigma; `None` if the role is empty."""
    own = [member for member in summary.members if member.role == role]
    return max(own, key=lambda member: member.mu - 3 * member.sigma).name if own else None
