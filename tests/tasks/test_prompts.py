import random
import re

import pytest

from tests.code_tasks import code_draw, code_seeds, code_task, code_types
from trl_populora.executor import Status
from trl_populora.tasks import REASONS, STYLES, render_prompt
from trl_populora.tasks.code import CodeO, hygiene
from trl_populora.tasks.code.hygiene import ALLOWED_MODULES, check_program
from trl_populora.tasks.code.pairs import hidden, visible
from trl_populora.tasks.code.prompts import program_rules


TYPES = ("code_o", "code_i", "code_f")
REFERENCES = code_seeds(12, seed=5)
MARK = "987654321"


def content(messages) -> str:
    (message,) = messages
    assert message["role"] == "user"
    return message["content"]


def without_fences(text: str) -> str:
    """What is left of a prompt when complete blocks are taken out: the words around the task."""
    return re.sub(r"^```\w+\n.*?\n```$", "", text, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("type", TYPES)
def test_compact_prompts_put_few_words_around_the_task(type):
    task_type = code_types("compact")[type]
    task = code_draw(type, random.Random(1))
    for messages in (task_type.propose_prompt([task], random.Random(0)), task_type.solve_prompt(task)):
        assert 5 <= len(without_fences(content(messages)).split()) <= 25


@pytest.mark.parametrize("type", TYPES)
def test_solver_prompts_show_exactly_what_the_solver_may_see(type, style):
    task_type = code_types(style)[type]
    task = code_draw(type, random.Random(2), families=["steps"])
    text = content(task_type.solve_prompt(task))
    shown = {
        "code_o": [task.payload.program, task.payload.input],
        "code_i": [task.payload.program, task.payload.output],
        "code_f": [task.payload.message, *(part for pair in visible(task) for part in pair)],
    }[type]
    assert all(part in text for part in shown)
    for label, body in re.findall(r"^```(\w+)\n(.*?)\n```$", text, flags=re.DOTALL | re.MULTILINE):
        assert body in shown or "..." in body, label


def test_hidden_pairs_and_the_program_are_in_no_code_f_solver_prompt(style):
    type = code_types(style, num_function_inputs=4)["code_f"]

    marks = [MARK + str(i) for i in range(4)]
    task = code_task(
        "code_f",
        f"def f(x):\n    return x + {MARK}9",
        inputs=tuple(mark + "1" for mark in marks),
        outputs=tuple(mark + "2" for mark in marks),
        message="A constant is added.",
    )
    text = content(type.solve_prompt(task))
    assert MARK + "9" not in text
    assert not any(part in text for pair in hidden(task) for part in pair)
    assert all(part in text for pair in visible(task) for part in pair)


@pytest.mark.parametrize("type", ["code_o", "code_i"])
@pytest.mark.parametrize("k, given, shown", [(None, 12, None), (0, 12, 0), (3, 12, 3), (6, 2, 2), (6, 0, 0)])
def test_at_most_k_references_are_shown(type, style, k, given, shown):
    task_type = code_types(style, num_references=k)[type]
    text = content(task_type.propose_prompt(REFERENCES[:given], random.Random(0)))
    default = 6 if style == "full" else 1
    assert sum(f"```python\n{task.payload.program}\n```" in text for task in REFERENCES) == (
        default if k is None else shown
    )


@pytest.mark.parametrize("type", ["code_o", "code_i"])
def test_references_come_with_input_and_output_in_an_order_that_the_generator_decides(type):
    task_type = code_types("full")[type]
    texts = [content(task_type.propose_prompt(REFERENCES, random.Random(seed))) for seed in (0, 0, 1)]
    assert texts[0] == texts[1] != texts[2]
    assert any(f"```input\n{t.payload.input}\n```\n```output\n{t.payload.output}\n```" in texts[0] for t in REFERENCES)


def test_code_f_proposers_see_the_program_of_the_first_reference_alone(style):
    text = content(code_types(style)["code_f"].propose_prompt(REFERENCES, random.Random(0)))
    assert REFERENCES[0].payload.program in text
    assert not any(f"```python\n{task.payload.program}\n" in text for task in REFERENCES[1:])


def test_code_f_needs_a_program_to_show(style):
    task_type = code_types(style)["code_f"]
    with pytest.raises(ValueError, match="references"):
        task_type.propose_prompt([], random.Random(0))
    with pytest.raises(ValueError, match="references"):
        task_type.parse_proposal("", [])


@pytest.mark.parametrize("type", TYPES)
def test_prompts_ask_for_the_blocks_that_are_read(type, style):
    task_type = code_types(style, num_function_inputs=4)[type]
    proposal = content(task_type.propose_prompt(REFERENCES, random.Random(0)))
    solution = content(task_type.solve_prompt(code_draw(type, random.Random(0), num_function_inputs=4)))
    wanted = {
        "code_o": ("python input", "output"),
        "code_i": ("python input", "input"),
        "code_f": ("input message", "python"),
    }
    for label in wanted[type][0].split():
        assert f"```{label}" in proposal
    assert f"```{wanted[type][1]}" in solution
    assert type != "code_f" or "4" in proposal


def test_the_rules_in_the_full_prompt_are_the_rules_that_are_applied():
    rules = program_rules(CodeO(program_bytes=1234, input_bytes=99, output_bytes=77))
    assert all(number in rules for number in ("1234", "99", "77"))
    modules = re.search(r"only these modules: (.*?)\.\n", rules).group(1).split(", ")
    assert set(modules) == ALLOWED_MODULES
    for module in modules:
        assert check_program(f"import {module}\ndef f(x):\n    return x") is None
    names = re.search(r"the builtins (.*?);", rules).group(1).split(", ")
    assert set(names) == hygiene.BANNED_NAMES
    for name in names:
        assert check_program(f"def f(x):\n    return {name}(x)").reason == "banned_name"


BROKEN = {
    "BANNED_NAMES": "def f(x):\n    return {}(x)",
    "LITERAL_NAMES": "from operator import attrgetter, methodcaller\ndef f(x):\n    return {}(x, x)",
    "BANNED_ATTRIBUTES": "def f(x):\n    return x.{}",
    "BANNED_MEMBERS": "import dataclasses, functools, string, typing\ndef f(x):\n    return {}(x)",
}


@pytest.mark.parametrize("constant", BROKEN)
def test_every_banned_name_is_applied_and_stands_in_the_full_prompt(constant):
    for type in ("code_o", "code_i"):
        text = content(code_types("full")[type].propose_prompt([], random.Random(0)))
        for name in getattr(hygiene, constant):
            assert re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.]\w)", text), name
            module, _, member = name.rpartition(".")
            if not module or hasattr(__import__(module), member):  # some members came with later Pythons
                assert check_program(BROKEN[constant].format(name)) is not None, name


def test_allowed_dunder_names_stand_in_the_full_prompt():
    rules = program_rules(CodeO())
    assert all(name in rules for name in hygiene.ALLOWED_DUNDERS | hygiene.CLASS_DUNDERS)
    for rule in (
        "async",
        "import *",
        "private names of a module",
        "a module as a value",
        "_private",
        "`vars`",
        "`wraps`",
    ):
        assert rule in rules


TOLD = {  # what the full prompt says about each reason; those without a block are told by the form of the answer
    "no_program": "exactly these two blocks",
    "no_input": "exactly these two blocks",
    "not_literal": "as Python literals",
    "too_large": "Anything larger",
    "reserved_text": "no three backticks",
    "duplicate": "an earlier puzzle",
    "too_precise": "significant digits",
    "answer_too_long": "its right answer are short",
    "prompt_too_long": "fit into a prompt",
    "no_value": "returns a value",
    "syntax_error": "a Python program",
    "no_function": "defines a function `f`",
    "no_parameters": "at least one positional parameter",
    "banned_import": "import only these modules",
    "banned_name": "does not use the builtins",
    "banned_attribute": "No attributes",
    "dunder": "`__double__` names",
    "top_level_statement": "No other statement there calls `f`",
    "banned_syntax": "no `async`",
    "cpu_timeout": "half of the time limit",
    "nondeterministic": "in any order of calls",
    "unplain": "are plain values",
}
TOLD_FOR_CODE_F = {
    "no_input": "inputs for it",
    "too_few_inputs": "Then give 10 input blocks",
    "missing_message": "one message block",
    "message_leaks_program": "does not contain the program",
    "message_leaks_pairs": "does not list inputs with their outputs",
    "duplicate_inputs": "No two inputs are equal",
    "constant_outputs": "must not all be equal",
    "not_literal": "as Python literals",
    "too_large": "Anything larger",
    "reserved_text": "no three backticks",
    "duplicate": "an earlier puzzle",
    "too_precise": "significant digits",
    "prompt_too_long": "fits into a prompt",
    "cpu_timeout": "half of its time limit",
    "nondeterministic": "in every order of calls",
    "unplain": "a plain value",
}
OF_ANSWERS = {"no_output"}
OF_CODE_F = {name for name in TOLD_FOR_CODE_F if name not in TOLD}
UNTOLD = {"held_out"}  # a teacher that was told the tasks of exams could write them


def test_every_reason_of_a_refusal_stands_in_the_full_prompt():
    reasons = {reason for one in code_types().values() for reason in one.reasons} | set(REASONS)
    assert {*TOLD, *OF_CODE_F, *OF_ANSWERS, *UNTOLD} >= reasons - {status.value for status in Status}
    for type in TYPES:
        text = content(code_types("full")[type].propose_prompt(REFERENCES[:1], random.Random(0)))
        told = TOLD_FOR_CODE_F if type == "code_f" else TOLD
        assert {reason: phrase for reason, phrase in told.items() if phrase not in text} == {}, type


def test_prompts_stay_of_a_reasonable_length():
    """Characters of a proposal prompt without references."""
    for style, most in (("full", 3800), ("compact", 130)):
        for type in ("code_o", "code_i"):
            assert len(content(code_types(style)[type].propose_prompt([], random.Random(0)))) <= most


@pytest.mark.parametrize("type", TYPES)
def test_prompts_are_plain_and_the_same_every_time(type, style):
    task = code_draw(type, random.Random(3))
    assert code_types(style)[type].solve_prompt(task) == code_types(style)[type].solve_prompt(task)
    assert content(code_types(style)[type].solve_prompt(task)).isascii()


@pytest.mark.parametrize(
    "options, match",
    [
        ({"style": "long"}, "style must be one of"),
        ({"num_references": -1}, "num_references"),
        ({"num_function_inputs": 1}, "num_inputs must be at least 2"),
    ],
)
def test_bad_options_are_refused_at_once(options, match):
    with pytest.raises(ValueError, match=match):
        code_types(**options)
    with pytest.raises(ValueError, match="program_bytes"):
        CodeO(program_bytes=0)
    assert STYLES == ("full", "compact")


class Tokenizer:
    def __init__(self, chat_template):
        self.chat_template = chat_template

    def apply_chat_template(self, messages, *, tokenize, add_generation_prompt):
        assert not tokenize and add_generation_prompt
        return "".join(f"<{m['role']}>{m['content']}" for m in messages) + "<assistant>"


MESSAGES = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]


def test_chat_template_is_used_where_there_is_one():
    assert render_prompt(MESSAGES, Tokenizer("x")) == "<system>S<user>U<assistant>"
    assert render_prompt(MESSAGES, Tokenizer("x"), template="chat") == "<system>S<user>U<assistant>"
    assert render_prompt(MESSAGES, Tokenizer(None)) == render_prompt(MESSAGES, template="base")
    with pytest.raises(ValueError, match="use 'base'"):
        render_prompt(MESSAGES, Tokenizer(None), template="chat")


def test_base_template_is_a_transcript_that_the_assistant_continues():
    text = render_prompt(MESSAGES, Tokenizer("x"), template="base")
    assert text.endswith("S\n\nUser: U\n\nAssistant:")


def test_plain_template_adds_a_line_break_and_nothing_else():
    assert render_prompt([{"role": "user", "content": "a\nb"}], template="plain") == "a\nb\n"


def test_unknown_templates_and_roles_are_refused():
    with pytest.raises(ValueError, match="template must be one of"):
        render_prompt(MESSAGES, template="chatml")
    with pytest.raises(ValueError, match="role"):
        render_prompt([{"role": "tool", "content": ""}], template="base")


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("digits", [0, 6, 9])
def test_the_full_prompt_names_the_limit_of_floats(type, digits):
    text = content(code_types("full", max_float_digits=digits)[type].propose_prompt(REFERENCES, random.Random(0)))
    assert (f"at most {digits} significant digits" in text) is (digits > 0)
    assert digits or "significant" not in text
