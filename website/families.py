"""The page of all families of seed tasks, with an example of each, made by the families themselves."""

import random
from collections.abc import Iterator

from trl_populora.tasks import known_task_types, make_task_types


PREFACE = """\
# Families of seed tasks

Written by the families themselves while the site was built. A *family* makes one kind of seed task. `seed_families` of
a recipe names those that a run starts from, such as `seed_families: [total, each]`. If it is unset, a run uses the
families without a star. Each example is a proposal as a teacher would write it, and the right result.
"""


def families_page() -> str:
    """Markdown of the page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield PREFACE
    told: dict[tuple[str, ...], str] = {}
    for name, kind in make_task_types(known_task_types()).items():
        if kind.families in told:
            yield f"\n## {name}\n\nThe families of [{told[kind.families]}](#{told[kind.families]}).\n"
            continue
        told[kind.families] = name
        usual = kind.default_families or kind.families
        yield f"\n## {name}\n\n{len(kind.families)} families, {len(usual)} of them without a star.\n"
        for family in kind.families:
            task = kind.generate(random.Random(family), families=[family])
            yield f"### `{family}`{'' if family in usual else ' *'}\n"
            for text in (kind.propose_completion(task), kind.describe(task)):
                yield f"````text\n{text.strip()}\n````\n"
