"""`rounds/*.parquet`: what it says of every completion is what was asked, written, judged and learned from."""

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset, load_dataset
from trl.chat_template_utils import qwen3_template

from tests.tiny import lora, tiny_model, tiny_tokenizer
from tests.training.conftest import hash_reward
from trl_populora.generation import Sampler
from trl_populora.run_files.round_table import COLUMNS, ROUND_TABLE
from trl_populora.training import PopulationSelfPlayTrainer


ROOT = Path(__file__).parents[2]


def table_of(trainer, tmp_path):
    """The reader that docs/record.md shows."""
    files = f"{trainer.args.output_dir}/rounds/*.parquet"
    rows = load_dataset("parquet", data_files=files, split="train", cache_dir=str(tmp_path / "cache"))
    return rows.to_list()


def group_advantages(rows):
    """GRPO's: reward minus the group's mean, over its standard deviation, with TRL's epsilon."""
    rewards = np.array([row["total"] for row in rows])
    return (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-4)


@pytest.mark.slow
def test_every_completion_of_self_play(make_trainer, tmp_path, monkeypatch):
    replays, asked = [], []
    trainer = make_trainer(max_steps=3, num_generations=2, evolution_interval=2)
    sample = Sampler.__call__

    def spy(sampler, prompts, members, **settings):
        asked.extend(zip(members, prompts, strict=True))
        return sample(sampler, prompts, members, **settings)

    monkeypatch.setattr(Sampler, "__call__", spy)
    finish = trainer.source.finish

    def note(rows, metrics):
        replays.append({name: member.version for name, member in trainer.population.items()})
        finish(rows, metrics)

    trainer.source.finish = note
    trainer.train()
    rows = table_of(trainer, tmp_path)
    assert list(rows[0]) == list(COLUMNS)
    assert sorted((row["member"], row["prompt"]) for row in rows) == sorted((m, json.dumps(p)) for m, p in asked)
    assert any(old != replays[-1] for old in replays), "nobody was replaced: versions were not tested"
    for row in rows:
        assert row["version"] == replays[row["round"]][row["member"]]
        attempt = row["role"] == "student"
        assert (row["fill_in"] is not None) == (row["solved"] is not None) == attempt
        assert (row["task"] is None) == (row["payload"] is None) == (row["task_step"] is None)
        if attempt:
            assert row["fill_in"] == (row["opponent"] is None)
            program = json.loads(row["payload"])["program"]
            text = "".join(message["content"] for message in json.loads(row["prompt"]))
            assert program in text or row["type"] == "code_f"
    groups = defaultdict(list)
    for row in rows:
        assert row["learned"] and row["advantage"] is not None
        rewards = json.loads(row["rewards"])
        assert rewards["self_play_reward"] == pytest.approx(row["reward"])
        assert rewards["hash_reward"] == pytest.approx(hash_reward([row["completion"]])[0])
        row["total"] = sum(rewards.values())
        groups[row["round"], row["role"], row["member"], row["group"]].append(row)
    assert len(groups) == len(rows) / 2
    for group in groups.values():
        assert [row["advantage"] for row in group] == pytest.approx(group_advantages(group), abs=1e-4)


@pytest.mark.slow
def test_late_rows_carry_what_the_update_used(make_trainer, tmp_path):
    late = {"teacher_reward": "solvable", "solvable_rounds": 1}
    trainer = make_trainer(max_steps=3, num_generations=2, advantage="role_task", **late)
    used, advantages = [], trainer.source.advantages

    def note(rows):
        used.append(advantages(rows))
        return used[-1]

    trainer.source.advantages = note
    trainer.train()
    rows = table_of(trainer, tmp_path)
    waiting = [row for row in rows if row["role"] == "teacher" and row["kind"] == "learned"]
    assert waiting and not any(row["learned"] or row["advantage"] is not None for row in waiting)
    for number, expected in enumerate(used):
        own = [row for row in rows if row["round"] == number and row["kind"] == "late"]
        own += [row for row in rows if row["round"] == number and row["role"] == "student" and row["learned"]]
        assert [row["advantage"] for row in own] == pytest.approx(expected[-len(own) :].tolist())
        assert {row["kind"] for row in own} == ({"late", "learned"} if number else {"learned"})


@pytest.mark.slow
@pytest.mark.parametrize("chat", [False, True], ids=["text", "chat"])
def test_a_run_on_a_dataset(chat, config, tmp_path):
    words = "one two three four five six".split()
    prompts = [[{"role": "user", "content": word}] if chat else f"say {word}" for word in words]

    def some(completions, **kwargs):
        return [None] * len(completions)

    trainer = PopulationSelfPlayTrainer(
        tiny_model(),
        [hash_reward, some],
        config(num_teachers=0, num_students=2, num_generations=2, per_device_train_batch_size=4, max_steps=2),
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        processing_class=tiny_tokenizer(),
        peft_config=lora(),
    )
    trainer.train()
    rows = table_of(trainer, tmp_path)
    assert len(rows) == 2 * trainer.args.generation_batch_size and {row["role"] for row in rows} == {"student"}
    assert {row["member"] for row in rows} == {"student_0", "student_1"}
    for pair in zip(rows[::2], rows[1::2]):
        assert len({(row["round"], row["group"], row["member"], row["prompt"]) for row in pair}) == 1
        for row in pair:
            assert (json.loads(row["prompt"]) if chat else row["prompt"]) in prompts
            expected = pytest.approx(hash_reward([row["completion"]])[0])
            assert row["reward"] == row["total"] if "total" in row else row["reward"] == expected
            assert json.loads(row["rewards"]) == {"hash_reward": expected, "some": None}
            row["total"] = row["reward"]
        assert [row["advantage"] for row in pair] == pytest.approx(group_advantages(pair), abs=1e-4)
    assert {row["task"] for row in rows} == {None} and all(row["tokens"] for row in rows)


def test_reasoning_that_the_tokenizer_takes_out_of_the_text(config, tmp_path, monkeypatch):
    tokenizer = tiny_tokenizer()
    tokenizer.response_template = qwen3_template
    ids = tokenizer("<think>2 and 2</think>4<|im_end|>")["input_ids"]
    trainer = PopulationSelfPlayTrainer(
        tiny_model(),
        hash_reward,
        config(num_teachers=0, num_students=2, per_device_train_batch_size=4, max_steps=1, max_completion_length=32),
        train_dataset=Dataset.from_dict({"prompt": [[{"role": "user", "content": "2 + 2?"}]]}),
        processing_class=tokenizer,
        peft_config=lora(),
    )
    sampler = trainer.source.sampler
    monkeypatch.setattr(sampler, "draw", lambda prompts, *_: [sampler.completion(one, ids) for one in prompts])
    trainer.train()
    answer = {"role": "assistant", "reasoning_content": "2 and 2", "content": "4"}
    assert [json.loads(row["completion"]) for row in table_of(trainer, tmp_path)] == [[answer]] * 4


def test_the_page_lists_every_column():
    page = (ROOT / "docs" / "record.md").read_text()
    names = {int: "int", str: "text", float: "float", bool: "bool"}
    for name, (kind, meaning) in ROUND_TABLE.items():
        assert f"| `{name}` | {names[kind]} | {meaning} |" in page
