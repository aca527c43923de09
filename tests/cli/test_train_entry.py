"""Recipes and mistakes in them: what `accelerate launch -m trl_populora.train` says before any training."""

import json
import os
import re
import shutil
import zlib
from contextlib import ExitStack
from pathlib import Path

import pytest
import trl

from tests.processes import taken
from trl_populora import cli, train
from trl_populora.executor import Executor, SandboxError
from trl_populora.recipe import read_mapping
from trl_populora.run_files.checkpoint import FORMAT_VERSION
from trl_populora.run_files.layout import POPULATION_FILE, RUN_FILE
from trl_populora.run_files.run_folder import RunFolder


ROOT = Path(__file__).resolve().parents[2]
NO_RECIPES = ("accelerate_configs", "experiments", "dataset")  # the last: tests/examples
RECIPES = sorted(path for path in (ROOT / "recipes").glob("*/*.yaml") if path.parent.name not in NO_RECIPES)


def round_in_words(args) -> str:
    T, P, G, each = args.num_teachers, args.prompts_per_teacher, args.num_generations, args.rows_per_member
    teacher, student = ("as teacher", "as student") if args.shared_member else ("per teacher", "per student")
    return (
        f"# A round: {T} x {P} x {G} = {T * P * G} proposals, {G} attempts each. Learned from: {args.rows_per_round} "
        f"rows, {each['teacher']} {teacher}, {each['student']} {student}\n"
    )


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_recipes_are_read_and_give_a_consistent_round(path):
    large, one_card = path.parent.name.startswith("qwen2.5"), path.stem.endswith("gb")
    # bfloat16 is the only thing that a test machine may lack.
    for_a_gpu = large or path.stem.endswith("gpu")
    run, args = train.parse(["--config", str(path), *(["--bf16", "false"] if for_a_gpu else [])])
    assert run.model_name_or_path and args.output_dir.startswith("runs/")
    assert args.rows_per_round == args.per_device_train_batch_size * args.gradient_accumulation_steps
    if large and not one_card:
        assert args.gradient_accumulation_steps % 8 == 0  # it is launched on eight processes
        assert args.use_vllm  # decoding by transformers takes minutes of a round there
    if path.stem != "retention":  # whose sizes its command sets
        assert round_in_words(args) in path.read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    RECIPES,
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
def test_recipes_construct_a_trainer(path, tiny_model, tmp_path, monkeypatch):
    """With the packages that it needs, and no other extra: what `pip install` alone brings."""
    needed = {"plotly", "jinja2", "matplotlib"} | ({"math_verify"} if path.stem == "math" else set())
    needed |= {"lightning"} if "warm_start_steps" in path.read_text() else set()
    if "load_in_4bit" in path.read_text():
        pytest.importorskip("bitsandbytes", reason="pip install 'trl-populora[quantized]'")
        needed.add("bitsandbytes")
    monkeypatch.setattr("trl_populora.extras.is_installed", needed.__contains__)
    base = shutil.copytree(tiny_model, tmp_path / "base")
    config = json.loads((base / "config.json").read_text()) | {
        "max_position_embeddings": 32768
    }  # as the real ones have
    (base / "config.json").write_text(json.dumps(config))
    small = {"model_name_or_path": base, "output_dir": tmp_path / "run"}
    small |= {"use_cpu": "true", "bf16": "false", "use_vllm": "false"}  # an engine has tests of its own
    run, args = train.parse(["--config", str(path), *(f"--{name}={value}" for name, value in small.items())])
    _, trainer = train.build(run, args)
    try:
        shared = args.shared_member
        assert len(trainer.population) == (1 if shared else args.num_teachers + args.num_students)
        assert len(trainer.source.buffer) == args.seed_tasks * len(args.task_types)
        assert len(trainer.train_dataset) * args.num_generations == args.rows_per_round
    finally:
        trainer.source.executor.close()


def recipe_args(folder, name):
    return train.parse(["--config", f"{ROOT}/recipes/{folder}/{name}.yaml", "--bf16", "false"])[1]


@pytest.mark.parametrize("folder", ["qwen2.5-coder-7b", "tiny"])
def test_controls_are_matched_to_the_population_as_they_say(folder):
    population = recipe_args(folder, "4t4s")
    members, each = population.num_teachers + population.num_students, population.rows_per_member
    per_adapter, per_role = (recipe_args(folder, f"single_agent_per_{match}") for match in ("adapter", "role"))
    assert per_adapter.rows_per_round * members == population.rows_per_round
    assert per_role.rows_per_member == each and per_role.rows_per_round == sum(each.values())
    same = (
        "max_steps",
        "num_iterations",
        "teacher_reward",
        "advantage",
        "learning_rate",
        "lr_scheduler_type",
        "lora_r",
    )
    for control in (per_adapter, per_role):
        assert control.shared_member and control.evolution is None and not control.balance_rows
        assert [getattr(control, name) for name in same] == [getattr(population, name) for name in same]


@pytest.mark.parametrize("folder", ["qwen2.5-coder-7b", "tiny"])
def test_the_single_agent_of_azr(folder):
    args = recipe_args(folder, "single_agent_azr")
    assert (args.teacher_reward, args.advantage, args.shared_member) == ("learnability", "role_task", True)
    assert args.rows_per_member["teacher"] == args.rows_per_member["student"]
    assert args.prompts_per_teacher % len(args.task_types) == 0
    assert args.completions_per_round == recipe_args(folder, "4t4s").completions_per_round
    if folder != "tiny":  # 64 prompts of each of three types, proposed and solved; 8 attempts to rate each task
        assert args.rows_per_member["teacher"] == 3 * 64
        assert args.completions_per_round - args.proposals_per_round == 3 * 64 * 8


def test_populations_of_all_sizes_have_members_of_the_same_rows():
    rows = [recipe_args("qwen2.5-coder-7b", name).rows_per_member for name in ("1t1s", "4t4s", "8t8s")]
    assert rows[0] == rows[1] == rows[2]


def test_the_table_of_rows_in_the_docs_is_that_of_the_recipes():
    text = (ROOT / "docs" / "configuration.md").read_text()
    for path in RECIPES:
        if path.parent.name in ("qwen2.5-coder-7b", "tiny") and path.stem != "retention":
            args = recipe_args(path.parent.name, path.stem)
            each, adapters = args.rows_per_member, 1 if args.shared_member else args.num_teachers + args.num_students
            mean = args.rows_per_round // adapters
            row = f"| `{path.parent.name}/{path.stem}` | {each['teacher']} | {each['student']} | {mean} | "
            assert f"{row}{args.completions_per_round} | {args.max_steps} |" in text, row


def test_the_tiny_recipe_plays_what_its_base_was_trained_on():
    from recipes.tiny.make.tiny_rows import NUM_FUNCTION_INPUTS, TRAINED_FAMILIES

    _, args = train.parse(["--config", f"{ROOT}/recipes/tiny/4t4s.yaml"])
    assert tuple(args.seed_families) == TRAINED_FAMILIES
    assert args.task_kwargs["code_f"]["num_inputs"] == NUM_FUNCTION_INPUTS and args.prompt_style == "compact"


def test_accelerate_configs_are_those_of_accelerate():
    from accelerate.commands.config import load_config_from_file

    for path in sorted((ROOT / "recipes" / "accelerate_configs").glob("*.yaml")):
        config = load_config_from_file(str(path))
        assert config.num_processes >= 1 and config.use_cpu == (path.stem == "cpu")


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"num_teacher": 2}, "Unknown setting 'num_teacher' in the recipe. Did you mean 'num_teachers'?"),
        ({"zzzzzzzz": 2}, "Unknown setting 'zzzzzzzz' in the recipe."),
        ({"num_teachers": 2.5}, "num_teachers=2.5 in the recipe must be a whole number."),
        ({"num_teachers": "two"}, "num_teachers='two' in the recipe must be a whole number."),
        ({"num_teachers": True}, "num_teachers=True in the recipe must be a whole number."),
        ({"num_students": 0}, "num_students=0"),
        ({"num_teachers": 0, "per_device_train_batch_size": 4}, "reward_funcs is empty"),
        ({"num_teachers": 0, "reward_funcs": ["accuracy_reward"]}, "pass train_dataset"),
        ({"num_teachers": 0, "dataset_name": "/no/such.jsonl"}, "dataset_name='/no/such.jsonl' cannot be loaded"),
        ({"reward_funcs": ["nowhere.reward"]}, "'nowhere.reward': the module 'nowhere' cannot be imported"),
        ({"reward_funcs": ["os.sep"]}, "'os.sep' is a str, not a function"),
        ({"sampler": "nowhere:Mine"}, "sampler: 'nowhere:Mine': the module 'nowhere' cannot be imported"),
        ({"teacher_reward": "nowhere:mine"}, "teacher_reward='nowhere:mine': the module 'nowhere' cannot be imported"),
        ({"sampler": "os:sep"}, "is neither a class nor a function"),
        ({"sampler_kwargs": {"kind": "sglang"}}, "needs a sampler"),
        ({"evolution_interval": 2, "evolution_kwargs": {"operators": ["svd_subspce"]}}, "svd_subspace"),
        ({"dataset_name": "x.jsonl"}, "dataset_name='x.jsonl' with num_teachers=1"),
        ({"max_completion_length": 0}, "error: max_completion_length=0 must be at least 1"),
        ({"evolution_kwargs": "fraction=0.5"}, "'{\"fraction\": 0.5}' on the command line (JSON), or {fraction: 0.5}"),
        ({"seed_families": ["adds"]}, "no seed families ['adds'] of ['code_o']. Did you mean 'add'?"),
        (
            {"report_to": "tensorbord"},
            "report_to=['tensorbord']: there is no tracker 'tensorbord'. Did you mean 'tensor",
        ),
        (
            {"lora_target_modules": ["q_porj"]},
            "lora_target_modules=['q_porj']: the base has no module 'q_porj'. Did you",
        ),
        ({"lora_target_modules": ["q_proj", "foo"]}, "the base has no module 'foo'. Take it out"),
        ({"lora_r": 0}, "lora_r=0"),
        ({"save_steps": float("inf")}, "save_steps=inf must be finite"),
        ({"model_init_kwargs": 5}, "model_init_kwargs=5 must be a mapping, or unset"),
        ({"optim": "adamw_torhc"}, "optim='adamw_torhc' is unknown. Did you mean 'adamw_torch'?"),
        ({"lr_scheduler_type": "qqq"}, "lr_scheduler_type='qqq' is unknown. Choose from ['linear', "),
        ({"log_level": "abc"}, "log_level='abc' is unknown. Choose from"),
        ({"chat_template_kwargs": [1]}, "chat_template_kwargs=[1] must be a mapping, or unset"),
        ({"gradient_checkpointing_kwargs": [1]}, "gradient_checkpointing_kwargs=[1] must be a mapping, or unset"),
        ({"logging_steps": float("nan")}, "logging_steps=nan must be finite"),
        ({"model_name_or_path": "/no/such/folder"}, "no such folder"),
        ({"model_name_or_path": "leave out"}, "model_name_or_path is not set"),
        ({"learning_rate": "fast"}, "learning_rate"),
        ({"warm_start_steps": -1}, "warm_start_steps=-1"),
        ({"warm_start_rows": 0}, "warm_start_rows=0"),
        ({"warm_start_learning_rate": "nan"}, "warm_start_learning_rate=nan"),
        (
            {"warm_start_steps": 2, "beta": 0.1, "model_name_or_path": "no/such-model"},
            "beta=0.1 with warm_start_steps=2",
        ),
        (
            {"warm_start_steps": 2, "initial_adapters": "runs/sft", "model_name_or_path": "no/such-model"},
            "initial_adapters with warm_start_steps=2",
        ),
        ({"output_dir": "/proc/nothing/here"}, "cannot be written"),
        ({"resume_from_checkpoint": ""}, "resume_from_checkpoint='' is empty"),
        ({"resume_from_checkpoint": "/no/such"}, "is not a complete checkpoint of a population"),
        ({"resume_from_checkpoint": "atuo"}, "no such folder. Name the folder of a checkpoint, or `auto` for"),
        ({"resume_from_checkpoint": __file__}, "it is a file. Name the folder of a checkpoint, or `auto` for"),
    ],
)
def test_a_mistake_ends_in_one_sentence_and_exit_code_2(recipe, capfd, changes, words):
    assert train.main(recipe(**changes)) == 2
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("populora: error: ")]
    assert len(lines) == 1 and words in lines[0]


def test_mistakes_on_the_command_line(recipe, capfd, tmp_path):
    assert train.main([*recipe(), "--num_teacherz", "2"]) == 2
    assert "Unknown option '--num_teacherz'. Did you mean '--num_teachers'?" in capfd.readouterr().err
    assert train.main(["--config"]) == 2
    assert "--config needs the path" in capfd.readouterr().err
    assert train.main(["--config", str(tmp_path / "nothing.yaml")]) == 2
    assert "cannot be read: No such file" in capfd.readouterr().err
    (tmp_path / "bad.yaml").write_text("a: [1")
    assert train.main(["--config", str(tmp_path / "bad.yaml")]) == 2
    assert "is not YAML" in capfd.readouterr().err
    (tmp_path / "twice.yaml").write_text("seed: 1\nseed_tasks: 9\nprobe_kwargs: {exams: [a], exams: [b]}\n")
    assert train.main(["--config", str(tmp_path / "twice.yaml")]) == 2
    assert "twice.yaml, line 3: 'exams' is given twice. Keep one." in capfd.readouterr().err
    (tmp_path / "merged.yaml").write_text(
        "defaults: &B {x: 1, y: 2}\nnested: {inner: &A {<<: *B, x: 2}}\ntop: {<<: *A, z: 3, 1: a, '1': b}\n"
    )
    assert read_mapping(str(tmp_path / "merged.yaml"))["top"] == {"x": 2, "y": 2, "z": 3, 1: "a", "1": "b"}
    (tmp_path / "bytes.yaml").write_bytes(b"seed: \xff")
    assert train.main(["--config", str(tmp_path / "bytes.yaml")]) == 2
    assert "bytes.yaml is not text in UTF-8 (invalid start byte, byte 6)" in capfd.readouterr().err
    (tmp_path / "list.yaml").write_text("- 1")
    assert train.main(["--config", str(tmp_path / "list.yaml")]) == 2
    assert "must be a mapping" in capfd.readouterr().err


def test_a_mistake_in_the_recipe_is_told_once_on_each_machine(recipe, capfd, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert train.main(recipe(num_students=0)) == 2
    assert "populora: error: " in capfd.readouterr().err, "a RANK without a WORLD_SIZE is left over"
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert train.main(recipe(num_students=0)) == 2
    assert "populora: error" not in capfd.readouterr().err
    monkeypatch.setenv("LOCAL_RANK", "0")  # the first of another machine, which may have another file
    assert train.main(recipe(num_students=0)) == 2
    assert "populora: error (rank 1): " in capfd.readouterr().err


def test_a_base_that_was_cut_off_is_named(recipe, capfd, tmp_path, tiny_model, run_folder):
    folder = tmp_path / "base"
    shutil.copytree(tiny_model, folder)
    os.truncate(folder / "model.safetensors", 1000)
    assert train.main(recipe(model_name_or_path=str(folder))) == 2
    assert f"populora: error: the base '{folder}' is damaged: " in capfd.readouterr().err
    assert cli.main(["play", run_folder, "--base", str(folder)]) == 2
    assert f"populora: error: the base '{folder}' is damaged: " in capfd.readouterr().err


def test_no_sandbox_ends_in_one_sentence_and_costs_no_earlier_run(recipe, capfd, tmp_path, monkeypatch):
    words = recipe(overwrite_output_dir=True)
    folder = tmp_path / "run"
    folder.mkdir()
    for name in (RUN_FILE, POPULATION_FILE):
        (folder / name).write_text("{}")

    def refuse(self):
        raise SandboxError("Programs cannot be confined here: no seccomp.")

    monkeypatch.setattr(Executor, "_running", refuse)
    assert train.main(words) == 2
    assert capfd.readouterr().err.splitlines()[-1] == "populora: error: Programs cannot be confined here: no seccomp."
    assert sorted(path.name for path in folder.iterdir()) == sorted((RUN_FILE, POPULATION_FILE))


def test_a_used_folder_is_not_written_over_unasked(recipe, capfd, tmp_path):
    folder = tmp_path / "run"
    (folder / "checkpoint-2").mkdir(parents=True)
    (folder / "history.jsonl").write_text("")
    (folder / "notes.txt").write_text("mine")
    _, args = train.parse(recipe())
    with pytest.raises(ValueError, match="already holds a run"):
        train.prepare_output(args)
    _, args = train.parse(recipe(overwrite_output_dir=True))
    assert train.prepare_output(args) is None
    RunFolder(str(folder)).start(overwrite=True)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_a_folder_in_which_another_run_trains_is_left_alone(recipe, capfd, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "history.jsonl").write_text("")
    with taken(str(folder)):
        assert train.main(recipe(overwrite_output_dir=True)) == 2
    assert "another run trains there. Wait for its end" in capfd.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["history.jsonl"]


def test_two_commands_that_start_at_once(recipe, capfd, tmp_path, monkeypatch):
    """The second one may have seen no folder, and leaves that of the first one there."""
    folder = tmp_path / "run"
    with ExitStack() as first:

        def check(path, **_):
            Path(path).mkdir()
            first.enter_context(taken(path))

        monkeypatch.setattr(train, "check_writable", check)
        assert train.main(recipe()) == 2 and folder.is_dir()
    assert "another run trains there" in capfd.readouterr().err


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_folder_of_other_work_is_not_written_over(recipe, capfd, tmp_path, overwrite):
    plot = tmp_path / "run" / "plots" / "figure.txt"
    plot.parent.mkdir(parents=True)
    plot.write_text("mine")
    assert train.main(recipe(overwrite_output_dir=overwrite)) == 2
    assert "holds plots, and no run has written into it" in capfd.readouterr().err
    assert plot.read_text() == "mine"


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"reward_funcs": ["nowhere.reward"]}, "'nowhere.reward': the module 'nowhere' cannot be imported"),
        ({"lr_scheduler_type": "warmup_stable_decay"}, "lr_scheduler_type='warmup_stable_decay', "),
        ({"optim": "lomo"}, "optim='lomo' cannot be used: "),
        ({"initial_adapters": "/no/such"}, "initial_adapters='/no/such': there is no such folder"),
    ],
)
def test_a_mistake_costs_no_earlier_run(recipe, capfd, tmp_path, changes, words):
    folder = tmp_path / "run"
    (folder / "checkpoint-2").mkdir(parents=True)
    (folder / "history.jsonl").write_text("")
    assert train.main(recipe(overwrite_output_dir=True, **changes)) == 2
    assert words in capfd.readouterr().err
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoint-2", "history.jsonl"]


def test_auto_takes_the_newest_whole_checkpoint(recipe, tmp_path):
    _, args = train.parse(recipe(resume_from_checkpoint="auto"))
    assert train.prepare_output(args) is None
    for step in (2, 10, 12):
        folder = tmp_path / "run" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        (folder / "optimizer.pt").write_text("abc")
        files = {"optimizer.pt": (3, zlib.crc32(b"abc"))}
        (folder / "manifest.json").write_text(json.dumps({"format": FORMAT_VERSION, "files": files}))
    (tmp_path / "run" / "checkpoint-12" / "optimizer.pt").write_text("ab")  # cut off
    assert train.prepare_output(args) == str(tmp_path / "run" / "checkpoint-10")
    _, args = train.parse(recipe(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-12")))
    with pytest.raises(ValueError, match="optimizer.pt has 2 bytes instead of 3"):
        train.prepare_output(args)


def test_auto_starts_again_what_never_reached_a_checkpoint_but_nothing_finished(recipe, tmp_path):
    folder = tmp_path / "run"
    (folder / ".saving" / "checkpoint-2").mkdir(parents=True)  # killed while it wrote
    (folder / "history.jsonl").write_text("")
    _, args = train.parse(recipe(resume_from_checkpoint="auto"))
    assert train.prepare_output(args) is None
    place = RunFolder(str(folder))
    place.discard_unfinished = True
    place.start(overwrite=False)
    assert list(folder.iterdir()) == []
    (folder / "checkpoint-2").mkdir()  # cut off by a copy, say: not thrown away
    with pytest.raises(ValueError, match="checkpoint-2' is not a complete checkpoint"):
        train.prepare_output(args)
    (folder / "checkpoint-2").rmdir()
    (folder / "population.json").write_text("{}")
    for more in ({}, {"overwrite_output_dir": True}):
        _, args = train.parse(recipe(resume_from_checkpoint="auto", **more))
        with pytest.raises(
            ValueError, match="holds a finished run without a checkpoint: leave resume_from_checkpoint"
        ):
            train.prepare_output(args)
        with pytest.raises(
            ValueError, match="train without resume_from_checkpoint and with overwrite_output_dir=true"
        ):
            place.start(overwrite=bool(more))
    assert [path.name for path in folder.iterdir()] == ["population.json"]


REWARDS = """
def short(completions, **kwargs):
    return [-float(len(c[0]["content"] if isinstance(c, list) else c)) for c in completions]
"""


@pytest.mark.slow
def test_a_recipe_trains_students_on_a_dataset(recipe, tmp_path, monkeypatch, capfd):
    from trl_populora.reporting import read_history

    (tmp_path / "my_rewards.py").write_text(REWARDS)
    (tmp_path / "prompts.jsonl").write_text("".join(f'{{"prompt": "say {i}"}}\n' for i in range(8)))
    monkeypatch.chdir(tmp_path)
    settings = dict(
        num_teachers=0, num_students=2, dataset_name=str(tmp_path / "prompts.jsonl"), reward_funcs=["my_rewards.short"]
    )
    assert train.main(recipe(**settings, per_device_train_batch_size=4, max_steps=2, evolution_interval=1)) == 0
    history = read_history(tmp_path / "run")
    assert len(history) == 2 and history[0].students and not history[0].teachers and history[0].events
    assert all(member.reward is not None for member in history[1].members)
    out = capfd.readouterr().out
    assert "student_1" in out and "Strongest student" in out and "solve rate" not in out
    assert re.search(r"student_1  4 rows, \d+ prompt tokens, \d+ completion tokens, 2 updates", out)
    assert cli.main(["report", str(tmp_path / "run"), "--no-plots"]) == 0
    assert re.search(r"student_1 +4 +\d+ +\d+ +2 +0 +0\n", capfd.readouterr().out)
    assert (tmp_path / "run" / "student_0" / "adapter_model.safetensors").is_file()


FAULTY = """
def value(**kwargs):
    raise ValueError("answer 'x' is no number")


def file(**kwargs):
    open("/no/such/answers.json")
"""


@pytest.mark.slow
@pytest.mark.parametrize("main", [train.main, lambda words: cli.main(["train", *words])], ids=["module", "command"])
@pytest.mark.parametrize("name, error", [("value", ValueError), ("file", FileNotFoundError)])
def test_an_exception_of_user_code_keeps_its_traceback(recipe, tmp_path, monkeypatch, main, name, error):
    """An exception that leaves `main` ends the process with a traceback and exit code 1."""
    (tmp_path / "faulty_rewards.py").write_text(FAULTY)
    (tmp_path / "prompts.jsonl").write_text("".join(f'{{"prompt": "say {i}"}}\n' for i in range(8)))
    monkeypatch.chdir(tmp_path)
    data = {"num_teachers": 0, "num_students": 2, "dataset_name": str(tmp_path / "prompts.jsonl")}
    with pytest.raises(error) as raised:
        main(recipe(**data, reward_funcs=[f"faulty_rewards.{name}"], per_device_train_batch_size=4))
    assert "faulty_rewards.py" in str(raised.traceback[-1].path)
    assert main(recipe(**data, reward_funcs=["nowhere.reward"])) == 2


def test_a_run_leaves_what_its_owner_needs(run_folder):
    import json

    from trl_populora.reporting import read_history

    folder = Path(run_folder)
    history = read_history(folder)
    assert [summary.round for summary in history] == [0, 1]
    assert {event["slot"].split("_")[0] for event in history[0].events} == {"teacher", "student"}
    for name in ("teacher_0", "teacher_1", "student_0", "student_1"):
        assert (folder / name / "adapter_model.safetensors").is_file()
    record = json.loads((folder / "run.json").read_text())
    assert record["settings"]["num_teachers"] == 2 and record["versions"]["trl"] == trl.__version__
    assert (folder / "README.md").read_text().startswith("---")
    assert (folder / "plots" / "ratings.png").is_file()


@pytest.mark.slow
def test_a_warm_start_precedes_the_rounds_and_is_not_repeated_on_resuming(recipe, capfd):
    warm = {"warm_start_steps": 2, "warm_start_rows": 1, "save_strategy": "steps", "save_steps": 1, "plots": False}
    assert train.main(recipe(max_steps=1, **warm)) == 0
    assert "warm start 2/2  loss" in capfd.readouterr().out
    assert train.main(recipe(max_steps=2, resume_from_checkpoint="auto", **warm)) == 0
    assert "warm start" not in capfd.readouterr().out


@pytest.mark.parametrize("checkpointing", [True, False])
def test_a_warm_start_checkpoints_gradients_as_the_run_does(recipe, monkeypatch, checkpointing):
    from trl_populora.training import PopulationSelfPlayTrainer

    seen = []

    def warm(population, *args, **kwargs):
        base = population.base_model
        seen.append((base.is_gradient_checkpointing and base.training, base))

    monkeypatch.setattr("trl_populora.integrations.lightning.warm_start", warm)
    monkeypatch.setattr(PopulationSelfPlayTrainer, "train", lambda self, **kwargs: None)
    changes = {"warm_start_steps": 2, "gradient_checkpointing": checkpointing, "plots": False, "max_steps": 1}
    run, args = train.parse(recipe(**changes))
    view, trainer = train.build(run, args)
    before = trainer.population.model.training
    train.warm_up(run, args, trainer, view)
    assert [one for one, _ in seen] == [checkpointing]
    assert trainer.population.model.training == before
    trainer.close()


@pytest.mark.slow
def test_a_run_goes_on_from_its_newest_checkpoint(recipe, tmp_path):
    from trl_populora.reporting import read_history

    saved = {"save_strategy": "steps", "save_steps": 1, "plots": False}
    assert train.main(recipe(max_steps=1, **saved)) == 0
    assert train.main(recipe(max_steps=2, resume_from_checkpoint="auto", **saved)) == 0
    assert [summary.round for summary in read_history(tmp_path / "run")] == [0, 1]
