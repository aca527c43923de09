"""Names of task types, and that nothing else in the package knows one."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Literal

import pytest

import trl_populora
from tests.code_tasks import TYPES
from trl_populora.tasks import families_of, make_task_types, recorded, registry
from trl_populora.tasks.code import CodeF, CodeO


@dataclass(frozen=True)
class Mine(CodeO):
    """A type of a user: `code_o` under another name, with a setting."""

    id = "mine"
    families = ("add",)

    largest: int = 9


@dataclass(frozen=True)
class Opaque(CodeO):
    id = "opaque"

    judge_of: object = None


class Half(trl_populora.TaskType):
    id = "half"

    def simplest(self):
        return None


def test_the_default_types_are_those_of_azr_worded_alike():
    types = make_task_types(style="compact", num_references=2, kwargs={"code_f": {"num_inputs": 4}})
    assert tuple(types) == TYPES and {one.style for one in types.values()} == {"compact"}
    assert {one.num_references for one in types.values()} == {2} and types["code_f"].num_inputs == 4


def test_classes_go_by_module_and_name_and_instances_stay_as_they_are():
    name = f"{__name__}:Mine"
    made = make_task_types([name, CodeF(num_inputs=3)], style="compact", kwargs={"mine": {"largest": 5}})
    assert made["mine"] == Mine(style="compact", largest=5) and made["code_f"] == CodeF(num_inputs=3)


def test_installed_packages_bring_types(monkeypatch):
    point = EntryPoint("mine", f"{__name__}:Mine", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point] if group == registry.GROUP else [])
    assert make_task_types(["mine"]) == {"mine": Mine()}
    assert recorded([Mine()])[0] == ["mine"]


@pytest.mark.parametrize(
    ("names", "kwargs", "match"),
    [
        (["code_p"], {}, "'code_p' is unknown. Did you mean 'code_"),
        (["no_such_module:X"], {}, "'no_such_module' cannot be imported"),
        (["json:Nothing"], {}, "has no 'Nothing'"),
        ([":Nothing"], {}, "':Nothing' must be an id, or 'module:Class'"),
        ([CodeO], {}, "must be a list of names or objects"),
        (CodeO(), {}, "must be a list of names or objects"),
        ("code_o", {}, "'code_o' must be a list of names"),
        ([], {}, "must be a list of names"),
        (["json:dumps"], {}, "not a subclass of trl_populora.tasks.TaskType"),
        ([f"{__name__}:Half"], {}, "Half does not define .*judge.*solve_prompt.*payload"),
        (["code_o", CodeO()], {}, "two task types have the id 'code_o'"),
        (
            ["code_f"],
            {"code_f": {"num_input": 3}},
            "Unknown key 'num_input' in settings of task type 'code_f'. Did you mean",
        ),
        (["code_f"], {"code_f": {"num_inputs": "four"}}, "'code_f': num_inputs='four' must be a whole number"),
        (["code_f"], {"code_f": {"num_inputs": 4.5}}, "'code_f': num_inputs=4.5 must be a whole number"),
        (["math"], {"math": {"num_references": True}}, "'math': num_references=True must be a whole number, or unset"),
        (["code_f"], {"code_f": {"num_inputs": 1}}, "'code_f': num_inputs must be at least 2, got 1"),
        (["code_o"], {"cod": {}}, r"unknown task types \['cod'\]"),
        (["code_o"], {"code_o": None}, "could not be recorded"),
        (["code_f"], {"code_f": 3}, "settings of task type 'code_f' must be a mapping of names to values, got 3"),
        ([CodeO()], {"code_o": {"input_bytes": 9}}, "settings of 'code_o' are not used: it was passed as an object"),
    ],
)
def test_what_cannot_be_made_is_named_with_the_fix(names, kwargs, match):
    with pytest.raises(ValueError, match=match):
        make_task_types(names, kwargs=kwargs)


@dataclass(frozen=True)
class Loose(CodeO):
    id = "loose"

    names: Sequence[str] = ()
    choice: Literal["a", "b"] | None = None
    pairs: tuple[tuple[int, int], ...] = ()
    judge: Callable[[int], str] | None = None
    share: float = 0.5
    label: str = ""
    limit: int = None  # as some write it


@dataclass(frozen=True)
class Wrong(CodeO):
    id = "wrong"

    names: "callable | None" = None  # which no program can read


@dataclass(frozen=True)
class Unknown(CodeO):
    id = "unknown"

    names: "NotThere | None" = None  # noqa: F821 (as with an import for type checkers only)


def test_a_setting_whose_type_only_its_class_knows_is_left_to_it():
    names = ("a", "b")
    for kind in (Loose, Unknown, Wrong):
        made = make_task_types([f"{__name__}:{kind.__name__}"], kwargs={kind.id: {"names": names}})[kind.id]
        assert made.names is names
        assert make_task_types([f"{__name__}:{kind.__name__}"])
    given = {"choice": "a", "pairs": [[1, 2]], "judge": str, "share": 1, "label": "1e3", "limit": None}
    made = make_task_types([f"{__name__}:Loose"], kwargs={"loose": given})["loose"]
    assert {name: getattr(made, name) for name in given} == given
    assert isinstance(made.share, float) and made.judge is str
    recipe, settings = recorded([Loose(names=names, share=0.25)])
    (again,) = make_task_types(recipe, kwargs=settings).values()
    assert list(again.names) == list(names)  # as a run is opened again
    assert make_task_types([f"{__name__}:Loose"], kwargs={"loose": {"share": "1e-3"}})["loose"].share == 0.001


def test_settings_of_types_that_are_not_in_play_do_not_matter():
    assert make_task_types(["code_o"], kwargs={"code_f": {"num_inputs": 4}}) == {"code_o": CodeO()}


def test_a_record_of_types_makes_them_again():
    types = make_task_types(["code_f", Mine(largest=3)], style="compact", kwargs={"code_f": {"num_inputs": 4}})
    names, kwargs = json.loads(json.dumps(recorded(list(types.values()))))
    assert names == ["code_f", f"{__name__}:Mine"]
    assert make_task_types(names, style="full", kwargs=kwargs) == types
    names, kwargs = recorded([Opaque(judge_of=object())])
    with pytest.raises(ValueError, match=r"Make it there again: task_types=\[Opaque\(...\)\]"):
        make_task_types(names, kwargs=kwargs)


def test_families_belong_to_the_types_that_have_them():
    types = {"mine": Mine(), "code_o": CodeO()}
    assert families_of(types, None) == {"mine": None, "code_o": None}
    assert families_of(types, ["add", "keep"]) == {"mine": ("add",), "code_o": ("add", "keep")}
    assert families_of(types, ["keep"]) == {"mine": None, "code_o": ("keep",)}
    for wrong in (["nope"], []):
        with pytest.raises(ValueError, match="no seed families .*leave the setting out for the default ones"):
            families_of(types, wrong)
