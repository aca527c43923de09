import io
import json
import os
import resource
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from peft import AutoPeftModelForCausalLM
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from tests import tiny
from tests.tiny import tiny_population
from trl_populora import cli
from trl_populora.cli import opening, play
from trl_populora.evaluation import reserved_keys
from trl_populora.integrations import lightning
from trl_populora.reporting import plots, run_page
from trl_populora.reporting.played_run import read_run
from trl_populora.run_files.run import open_run
from trl_populora.self_play.rewards import RewardSettings
from trl_populora.tasks import make_task_types


TASK = "```python\ndef f(x):\n    return x + 1\n```\n```input\n1\n```"


def scripted(answers):
    """A sampler that takes turns through `answers[role]`."""

    def make_sampler(run, population, tokenizer, *, temperature):
        def sampler(prompts, members, *, seed):
            texts = [answers["base" if name is None else name.split("_")[0]] for name in members]
            return [SimpleNamespace(text=own[i % len(own)]) for i, own in enumerate(texts)]

        return sampler

    return make_sampler


def test_every_command_has_help(capsys):
    for name in cli.COMMANDS:
        if name != "train":
            with pytest.raises(SystemExit) as stop:
                cli.main([name, "--help"])
            assert stop.value.code == 0
            assert len(capsys.readouterr().out.splitlines()) > 4


def test_train_is_the_entry_point_of_recipes(capfd, tmp_path):
    assert cli.main(["train", "--config", str(tmp_path / "nothing.yaml")]) == 2
    assert "cannot be read" in capfd.readouterr().err


def test_unknown_commands_and_options_are_refused(capsys):
    for argv in (["trian"], ["report", "folder", "--plot"], []):
        with pytest.raises(SystemExit) as stop:
            cli.main(argv)
        assert stop.value.code == 2


@pytest.mark.slow
def test_report(run_folder, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(plots, "PLOTS", {"ratings": plots.PLOTS["ratings"]})
    assert cli.main(["report", run_folder, "--plots", str(tmp_path), "--output", str(tmp_path / "page.html")]) == 0
    text = capsys.readouterr().out
    assert "2 rounds" in text and "teacher_1" in text and "Family tree" in text and "replaced" in text
    assert (tmp_path / "ratings.png").is_file() and (tmp_path / "page.html").is_file() and "Page: " in text
    assert "\x1b" not in text
    rows = [line.split() for line in text.splitlines()]
    (header,) = [number for number, line in enumerate(text.splitlines()) if line.startswith("learned per adapter")]
    compute = {row[0]: row[1:] for row in rows[header + 1 : header + 6]}
    assert set(compute) == {"teacher_0", "teacher_1", "student_0", "student_1", "mean"}
    assert compute["teacher_0"][0] == "4" and compute["student_0"][0] == "8"  # two rounds of 2 and 4
    assert compute["mean"][0] == "6.0" and compute["teacher_0"][3:] == ["2", "0", "0"]  # updates; all learned from
    assert cli.main(["report", str(tmp_path)]) == 2
    assert "has no history.jsonl" in capsys.readouterr().err
    for folders in ([run_folder], [run_folder, run_folder]):
        assert cli.main(["report", *folders, "--no-plots", "--output", str(tmp_path / "ratings.png")]) == 2
        assert "ratings.png holds something else than a page; name another file" in capsys.readouterr().err

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("trl_populora.reporting.save_plots", refuse)
    page = str(tmp_path / "other.html")
    assert cli.main(["report", run_folder, "--output", page]) == 2
    told = capsys.readouterr()
    assert f"plots cannot be written to {run_folder}/plots: Permission denied; choose" in told.err
    assert "2 rounds" in told.out and f"Page: {page}" in told.out and os.path.isfile(page)
    monkeypatch.setattr("trl_populora.reporting.run_page.write_report", refuse)
    assert cli.main(["report", run_folder, "--no-plots"]) == 2
    assert "or leave it out with --no-page" in capsys.readouterr().err


@pytest.mark.slow
def test_a_reader_who_has_seen_enough_of_a_report_costs_no_page(run_folder, tmp_path, monkeypatch):
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError(32, "Broken pipe")

    page = tmp_path / "page.html"
    monkeypatch.setattr(sys, "stdout", Closed())
    assert cli.main(["report", run_folder, "--no-plots", "--output", str(page)]) == 0
    assert page.is_file()


@pytest.mark.slow
def test_a_watch_goes_on_where_its_own_output_cannot_be_written(run_folder, tmp_path, monkeypatch, caplog):
    class Full(io.StringIO):
        def write(self, text):
            raise OSError(28, "No space left on device")

    def watch(folder, path, *, on_page):
        for _ in range(2):
            on_page(run_page.write_report(read_run(folder), path))
            pages.append(os.path.getsize(page))
        raise KeyboardInterrupt

    page, pages = tmp_path / "page.html", []
    monkeypatch.setattr(run_page, "watch", watch)
    monkeypatch.setattr(sys, "stdout", Full())
    assert cli.main(["report", run_folder, "--watch", "--output", str(page)]) == 0
    assert len(pages) == 2 and caplog.text.count("No space left on device") == 1


def test_play_shows_a_task_from_proposal_to_solution(run_folder, capsys, monkeypatch):
    answers = {"teacher": ["no task", TASK], "student": ["```output\n2\n```", "```output\n3\n```", "?"]}
    monkeypatch.setattr(opening, "make_sampler", scripted(answers))
    assert cli.main(["play", run_folder, "--student", "student_1", "--proposals", "2", "--attempts", "4"]) == 0
    text = capsys.readouterr().out
    for words in (
        "== proposal 1: refused, no_program (no python fence",
        "\n  no task\n",
        "proposal 2: valid",
        "f(1) = 2",
        "student_1 is asked",
        "attempt 1: solved",
        "attempt 2: wrong",
        "attempt 3: refused",
        "Solve rate 50%: with teacher_reward 'adversarial' the teacher earns 0.50 for this task.",
    ):
        assert words in text


@pytest.mark.parametrize(
    "reward, rate, words",
    [
        ("frontier", 0.5, "'frontier' the teacher earns 1.00 for this task."),
        ("learnability", 0.0, "'learnability' the teacher earns -0.50 for this task."),
        ("solvable", 0.25, "'solvable' the teacher earns 0.75 for this task."),
        ("solvable", 0.0, "'solvable' the teacher earns 0.00 for this task, and 1.00 if anybody else solves it."),
    ],
)
def test_play_names_the_reward_of_the_run(reward, rate, words):
    assert words in play.worth(rate, RewardSettings(teacher=reward))


def test_play_reads_the_reward_from_the_run(run_folder, capsys, monkeypatch):
    answers = {"teacher": [TASK], "student": ["```output\n3\n```"]}
    monkeypatch.setattr(opening, "make_sampler", scripted(answers))
    real = opening.Run.setting

    def setting(run, name, default):
        return "solvable" if name == "teacher_reward" else real(run, name, default)

    monkeypatch.setattr(opening.Run, "setting", setting)
    assert cli.main(["play", run_folder]) == 0
    assert "with teacher_reward 'solvable' the teacher earns 0.00" in capsys.readouterr().out


def test_a_base_that_is_not_here_can_be_named(run_folder, tmp_path, capsys):
    """As in a population that was pulled, and whose base was a folder of another machine."""
    record = json.loads(Path(run_folder, "run.json").read_text()) | {"model": "their/models/base"}
    shutil.copytree(run_folder, tmp_path / "pulled")
    (tmp_path / "pulled" / "run.json").write_text(json.dumps(record))
    assert cli.main(["play", str(tmp_path / "pulled")]) == 2
    told = capsys.readouterr().err
    assert (
        "model='./their/models/base': no such folder" in told
    )  # and not a model of that name on the Hub and "name it with --base." in told


def test_play_says_when_nothing_is_valid(run_folder, capsys, monkeypatch):
    monkeypatch.setattr(opening, "make_sampler", scripted({"teacher": ["no task"]}))
    assert cli.main(["play", run_folder, "--proposals", "2"]) == 0
    assert "None of 2 proposals is valid" in capsys.readouterr().out
    assert cli.main(["play", run_folder, "--type", "code_f"]) == 2
    assert cli.main(["play", run_folder, "--teacher", "nobody"]) == 2


def test_evolve_makes_a_child_that_peft_loads(run_folder, tmp_path, tiny_model, capsys):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    parents = [f"{run_folder}/student_0", f"{run_folder}/student_1"]
    child = str(tmp_path / "child")
    options = ["--operator", "dare", "--output", child, "--set", "p=0.5", "space=factors"]  # their B is 0
    assert cli.main(["evolve", *parents, *options]) == 0
    own, first = load_file(f"{child}/adapter_model.safetensors"), load_file(f"{parents[0]}/adapter_model.safetensors")
    assert own.keys() == first.keys()
    assert any((own[key] != first[key]).any() for key in own)
    PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tiny_model), child)
    story = json.loads((tmp_path / "child" / "evolution.json").read_text())
    parameters = {"p": 0.5, "space": "factors"}
    assert story == {"operator": "dare", "parameters": parameters, "seed": 0, "parents": parents}


@pytest.mark.parametrize("command", ["evolve", "warmup", "export"])
def test_a_full_disk_is_told_in_one_sentence_and_leaves_no_folder(
    run_folder, tmp_path, tiny_model, capsys, monkeypatch, command
):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # Python would leave torn files of modules imported now
    options = {
        "evolve": [f"{run_folder}/student_0", "--operator", "clone"],
        "warmup": ["--model", tiny_model, "--steps", "1", "--rows", "1", "--teachers", "1", "--students", "1"],
        "export": [run_folder, "--member", "student_0"],
    }[command]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))
    try:
        assert cli.main([command, *options, "--output", str(tmp_path / "out")]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    told = capsys.readouterr().err
    assert told.startswith("populora: error: [Errno 27] File too large: ") and told.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["evolve", "export"])
def test_a_place_that_cannot_be_written_is_named(run_folder, tmp_path, capsys, command):
    (tmp_path / "file").write_text("")
    options = {
        "evolve": [f"{run_folder}/student_0", "--operator", "clone"],
        "export": [run_folder, "--member", "student_0"],
    }[command]
    assert cli.main([command, *options, "--output", str(tmp_path / "file" / "out")]) == 2
    told = capsys.readouterr().err
    assert "--output='" in told and "cannot be written: Not a directory. Choose another." in told


def test_an_export_names_the_base_where_it_is(run_folder, tmp_path, tiny_model):
    """PEFT loads it without a word about the base. `tiny` is a name that PEFT would ask the Hub for."""
    argv = ["export", "--member", "student_0", "--output"]
    assert cli.main([*argv, str(tmp_path / "one"), run_folder]) == 0
    model = AutoPeftModelForCausalLM.from_pretrained(tmp_path / "one")
    assert model.peft_config["default"].base_model_name_or_path == tiny_model
    shutil.copytree(run_folder, tmp_path / "run")
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["model_on_hub"] is False
    (tmp_path / "run" / "run.json").write_text(json.dumps(record | {"model": "tiny"}))
    assert cli.main([*argv, str(tmp_path / "two"), str(tmp_path / "run")]) == 0
    assert json.loads((tmp_path / "two" / "adapter_config.json").read_text())["base_model_name_or_path"] is None


def test_evolve_clone_is_exact(run_folder, tmp_path):
    parent, child = f"{run_folder}/teacher_0", str(tmp_path / "child")
    assert cli.main(["evolve", parent, "--operator", "clone", "--output", child]) == 0
    own, other = load_file(f"{child}/adapter_model.safetensors"), load_file(f"{parent}/adapter_model.safetensors")
    assert all((own[key] == other[key]).all() for key in other)


@pytest.mark.parametrize(
    "options, words",
    [
        (["student_0", "--operator", "svd_subspce"], "svd_subspace"),
        (["student_0", "--operator", "dare"], "dare takes 2 parents, got 1"),
        (["student_0", "--operator", "average"], "average takes at least 2 parents, got 1"),
        (["student_0", "--operator", "gaussian", "--set", "epz=1"], "eps"),
        (["student_0", "--operator", "gaussian", "--set", "eps=much"], "must be NAME=NUMBER"),
        (["rounds", "--operator", "gaussian"], "is not a PEFT folder"),
    ],
)
def test_evolve_names_mistakes(run_folder, tmp_path, capsys, options, words):
    argv = ["evolve", f"{run_folder}/{options[0]}", *options[1:], "--output", str(tmp_path / "child")]
    assert cli.main(argv) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "child").exists()


def test_evolve_tells_that_parents_name_other_bases(run_folder, tmp_path, capsys):
    config = tmp_path / "parent" / "adapter_config.json"
    shutil.copytree(f"{run_folder}/student_0", config.parent)
    own = json.loads(config.read_text())
    config.write_text(json.dumps(own | {"base_model_name_or_path": "another/model"}))
    parents, told = [f"{run_folder}/student_0", str(config.parent)], []
    for place in (parents, parents[:1] * 2):
        assert cli.main(["evolve", *place, "--operator", "average", "--output", str(tmp_path / str(len(told)))]) == 0
        told.append(capsys.readouterr().out)
    names = f"{own['base_model_name_or_path']}, another/model"
    assert f"The parents name other bases, {names}: of different models" in told[0] and "bases" not in told[1]


@pytest.mark.parametrize("operator", ["clone", "gaussian"])
def test_evolve_refuses_a_parent_that_has_diverged(run_folder, tmp_path, capsys, operator):
    parent = tmp_path / "parent"
    shutil.copytree(f"{run_folder}/student_0", parent)
    tensors = load_file(parent / "adapter_model.safetensors")
    next(iter(tensors.values()))[0, 0] = float("nan")
    save_file(tensors, parent / "adapter_model.safetensors")
    assert cli.main(["evolve", str(parent), "--operator", operator, "--output", str(tmp_path / "child")]) == 2
    assert f"{parent} has weights that are not finite, at " in capsys.readouterr().err
    assert not (tmp_path / "child").exists()


def test_a_folder_without_a_population_is_refused(tmp_path, capsys):
    assert cli.main(["evaluate", str(tmp_path)]) == 2
    assert "holds no population.json" in capsys.readouterr().err
    (tmp_path / "checkpoint-4").mkdir()
    assert cli.main(["play", str(tmp_path)]) == 2
    assert "it is a run of one policy (trl.GRPOConfig), and this reads populations" in capsys.readouterr().err


def test_doctor(capsys):
    code = cli.main(["doctor"])
    text = capsys.readouterr().out
    assert "torch" in text and "Sandbox: " in text
    assert ("Ready to train." in text) == (code == 0)


def test_warmup_keeps_exams_out(tiny_model, tmp_path, monkeypatch, capsys):
    types, seen = make_task_types(["countdown"], style="compact"), []
    tasks = types["countdown"].seeds(5)
    exam = tmp_path / "tasks.jsonl"
    exam.write_text("".join(json.dumps(task.to_json()) + "\n" for task in tasks))
    monkeypatch.setattr(lightning, "warm_start", lambda *_, reserved, **__: seen.append(reserved))
    options = ["--output", str(tmp_path / "warm"), "--types", "countdown", "--reserved-exams", f"tasks:{exam}"]
    assert cli.main(["warmup", "--model", tiny_model, *options]) == 0
    assert open_run(str(tmp_path / "warm")).setting("reserved_exams", None) == [f"tasks:{exam}"]
    options[1] = str(tmp_path / "other")
    assert cli.main(["warmup", "--model", tiny_model, *options, "gsm8k"]) == 0
    assert "gsm8k has no tasks, so nothing is kept out of the examples" in capsys.readouterr().out
    assert seen[0] == seen[1]
    assert seen[1:] == [reserved_keys(types) | {types["countdown"].key(task.payload) for task in tasks}]


@pytest.mark.parametrize(
    "argv",
    [
        ["warmup", "--model", "tiny", "--output", ""],
        ["evolve", "a", "--operator", "average", "--output", ""],
        ["push", "run", "--to", ""],
        ["evaluate", "run", "--exams", "held_out", ""],
    ],
)
def test_an_empty_option_is_refused(argv, tmp_path, monkeypatch, capsys):
    """As of a shell variable that is not set: an empty folder would be the current one."""
    monkeypatch.chdir(tmp_path)
    assert cli.main(argv) == 2
    option = [word for word in argv if word.startswith("--")][-1]
    assert f"{option.removeprefix('--')} is empty: name something" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_an_adapter_is_not_merged_into_another_base(tiny_model, tmp_path, capsys):
    """PEFT leaves out what it does not find, and warns at most."""
    run, argv = tmp_path / "run", ["export", str(tmp_path / "run"), "--member", "student_0", "--merge"]
    population = tiny_population(1, 1)
    population.name_base(tiny_model)
    population.save(str(run))
    for name, model in (("smaller", tiny.tiny_model()), ("other", tiny.two_layers(intermediate_size=32))):
        model.save_pretrained(tmp_path / name)
        argv[5:] = ["--output", str(tmp_path / "merged"), "--base", str(tmp_path / name)]
        assert cli.main(argv) == 2
        told = capsys.readouterr().err.splitlines()
        assert told[-1].startswith("populora: error") and "student_0 does not fit" in told[-1]
    weights = load_file(path := run / "student_0" / "adapter_model.safetensors")
    argv[5:] = ["--output", str(tmp_path / "merged")]
    for changed, words in (
        ({name: X * float("nan") for name, X in weights.items()}, "weights that are not finite"),
        ({name: X.int() for name, X in weights.items()}, "holds other tensors than"),
    ):
        save_file(changed, path, metadata={"format": "pt"})
        assert cli.main(argv) == 2 and words in capsys.readouterr().err
    assert not (tmp_path / "merged").exists()
    half = {name: X for name, X in weights.items() if ".layers.0." in name}
    save_file(half, path, metadata={"format": "pt"})
    assert cli.main(argv) == 2 and "does not fit" in capsys.readouterr().err
    save_file(weights, path, metadata={"format": "pt"})
    larger = tiny.two_layers()
    larger.resize_token_embeddings(264)
    larger.save_pretrained(tmp_path / "larger")  # a base with more tokens is still the adapter's
    tiny.tiny_tokenizer().save_pretrained(tmp_path / "larger")
    assert cli.main([*argv, "--base", str(tmp_path / "larger")]) == 0
    assert cli.main([*argv[:-1], str(tmp_path / "again"), "--base", "no/such-model"]) == 2
    assert "has another place here, name it with --base" in capsys.readouterr().err


@pytest.mark.slow
def test_warmup_saves_a_population_that_can_play(tiny_model, tmp_path, capsys):
    folder = str(tmp_path / "warm")
    options = ["--output", folder, "--teachers", "1", "--students", "1", "--steps", "2", "--rows", "1", "--rank", "2"]
    assert cli.main(["warmup", "--model", tiny_model, *options]) == 0
    assert "teacher_0, student_0" in capsys.readouterr().out
    opened = open_run(folder)
    assert opened.members == ("teacher_0", "student_0") and opened.setting("prompt_style", "full") == "compact"
    assert load_file(f"{folder}/student_0/adapter_model.safetensors")
    assert cli.main(["warmup", "--model", tiny_model, *options[:-1], "0"]) == 2
    assert "--rank 0 must be at least 1" in capsys.readouterr().err
    before = Path(folder, "student_0/adapter_model.safetensors").read_bytes()
    assert cli.main(["warmup", "--model", tiny_model, *options]) == 2
    assert f"--output {folder} is not empty. To keep it, name a new folder." in capsys.readouterr().err
    table = Path(folder, "population.json").rename(tmp_path / "population.json")  # as if killed while it saved
    assert cli.main(["warmup", "--model", tiny_model, *options]) == 2
    assert "If a warm start was stopped while it was saved there, remove it." in capsys.readouterr().err
    table.rename(Path(folder, "population.json"))
    assert Path(folder, "student_0/adapter_model.safetensors").read_bytes() == before
    options[1] = str(tmp_path / "other")
    with pytest.raises(SystemExit):
        cli.main(["warmup", "--model", tiny_model, *options, "--task-kwargs", "[1]"])
    assert "argument --task-kwargs: [1] must be a mapping" in capsys.readouterr().err
    assert cli.main(["warmup", "--model", tiny_model, *options, "--learning-rate", "nan"]) == 2
    assert "--learning-rate nan must be positive and finite" in capsys.readouterr().err
    assert cli.main(["warmup", "--model", tiny_model, *options, "--reserved-exams", "held"]) == 2
    assert "exam 'held' is unknown" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
    options[1] = f"{folder}/run.json"
    assert cli.main(["warmup", "--model", tiny_model, *options]) == 2
    assert "run.json is a file; name a new folder" in capsys.readouterr().err
    options[1] = "/proc/nowhere"
    assert cli.main(["warmup", "--model", tiny_model, *options]) == 2
    assert "--output='/proc/nowhere' cannot be written" in capsys.readouterr().err


def test_a_run_does_not_decide_how_safe_this_machine_is(run_folder, monkeypatch):
    kwargs = {"accept_unsafe": True, "workers": 500, "cpu_seconds": 7.0}
    record = open_run(run_folder)
    monkeypatch.setattr(opening.Run, "setting", lambda run, name, default: kwargs if name == "executor_kwargs" else 0)
    for told in (False, True):
        executor = opening.make_executor(record, accept_unsafe=told)
        assert executor._accept_unsafe is told and executor.workers < 500 and executor.limits.cpu_seconds == 7.0


@pytest.mark.parametrize(
    "given, words", [({"cpu_seconds": "7s"}, "cpu_seconds='7s' must be a number"), ({"cpu": 7}, "Unknown key 'cpu'")]
)
def test_limits_by_another_hand_are_told(given, words):
    with pytest.raises(ValueError, match="executor_kwargs of runs/mine") as error:
        opening.make_executor(opening.Run("runs/mine", "tiny", (), {"executor_kwargs": given}))
    assert words in str(error.value)


def test_members_are_asked_with_the_chat_template_of_their_run(run_folder, tmp_path):
    record = json.loads(Path(run_folder, "run.json").read_text())
    record["other_settings"]["chat_template_kwargs"] = {"enable_thinking": False}
    shutil.copytree(run_folder, tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text(json.dumps(record))
    for folder, wanted in ((run_folder, {}), (str(tmp_path / "run"), {"enable_thinking": False})):
        opened = open_run(folder)
        sampler = opening.make_sampler(opened, *opening.load_population(opened), temperature=0.0)
        assert sampler.chat_template_kwargs == wanted


def test_a_merged_model_has_the_chat_template_of_its_run(run_folder, tmp_path):
    run, whole = shutil.copytree(run_folder, tmp_path / "run"), str(tmp_path / "whole")
    (run / "chat_template.jinja").write_text("Mended")
    assert cli.main(["export", str(run), "--member", "student_0", "--merge", "--output", whole]) == 0
    assert AutoTokenizer.from_pretrained(whole).chat_template == "Mended"


def test_a_model_does_not_control_the_terminal(capsys):
    from trl_populora.cli.play import show

    show("attempt", "a\x1b]0;owned\x07\n\tb\x9b2Jé")
    assert capsys.readouterr().out == "\n== attempt\n  a\\x1b]0;owned\\x07\n  \tb\\x9b2Jé\n"


def test_files_of_others_do_not_control_the_terminal(run_folder, tmp_path, capsys):
    run, sign = tmp_path / "run", "\x1b]0;owned\x07"
    shutil.copytree(run_folder, run)
    lines = [json.loads(line) | {"alarms": [sign]} for line in (run / "history.jsonl").read_text().splitlines()]
    (run / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (run / "run.json").write_text(json.dumps(json.loads((run / "run.json").read_text()) | {"model": f"x{sign}"}))
    calls = (["report", str(run), "--no-page", "--no-plots"], ["runs", str(tmp_path)], ["play", str(run)])
    assert [cli.main(argv) for argv in calls] == [0, 0, 2]
    told = capsys.readouterr()
    assert "Alarm: \\x1b]0;owned\\x07" in told.out and "\x1b" not in told.out + told.err and "owned" in told.err


@pytest.mark.parametrize("on_disk", [True, False])
def test_a_base_is_packed_again_unless_it_is_so_on_disk(tiny_model, tmp_path, monkeypatch, on_disk):
    import shutil

    from transformers import AutoModelForCausalLM

    packing = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    shutil.copytree(tiny_model, tmp_path / "base")
    if on_disk:
        file = tmp_path / "base" / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"quantization_config": packing}))
    given = []
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", lambda path, **how: given.append(how))
    monkeypatch.setattr("trl_populora.extras.is_installed", lambda module: True)
    opening.load_base(str(tmp_path / "base"), quantization=packing)
    assert given[0]["device_map"] == "cpu" and given[0].get("quantization_config") == (None if on_disk else packing)
    monkeypatch.setattr("trl_populora.extras.is_installed", lambda module: False)
    with pytest.raises(ValueError, match="the run's base in 4 or 8 bits needs bitsandbytes, which is not installed"):
        opening.load_base(str(tmp_path / "base"), quantization=packing)
