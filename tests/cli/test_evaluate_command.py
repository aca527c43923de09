import json
import os
import shutil
import weakref
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import yaml
from transformers import AutoModelForCausalLM

from tests import tiny
from tests.evaluation import letters
from tests.generation.fake_server import ModelServer, running
from tests.processes import taken
from trl_populora import cli
from trl_populora.cli import evaluate as evaluate_command
from trl_populora.evaluation import answers
from trl_populora.generation.engines import VLLM
from trl_populora.reporting import evaluation_view
from trl_populora.reporting.evaluation_file import read_evaluation
from trl_populora.reporting.model_card import model_card, results_of


LETTERS = "tests.evaluation.letters:LETTERS"


@pytest.fixture
def data(tmp_path):
    return letters.write_data(tmp_path)


def evaluate(*options):
    return cli.main(["evaluate", *options])


def read(folder, name="evaluation.json"):
    return json.loads((folder / name).read_text())


def changed_run(run_folder, folder, **settings):
    """A copy of the run whose record says something else; a setting of `None` is left out."""
    shutil.copytree(run_folder, folder, ignore=shutil.ignore_patterns("checkpoint-*", "rounds"))
    record = json.loads((folder / "run.json").read_text())
    record |= {name: settings.pop(name) for name in ("model",) if name in settings}
    record["other_settings"] |= {name: settings.pop(name) for name in ("chat_template_kwargs",) if name in settings}
    record["settings"] = {k: v for k, v in (record["settings"] | settings).items() if v is not None}
    (folder / "run.json").write_text(json.dumps(record))
    return str(folder)


@pytest.mark.slow
def test_members_and_base_take_exams(run_folder, data, tmp_path, capsys):
    output = tmp_path / "out"
    exams = ["--exams", "held_out", LETTERS, "--limit", "3", "--data", data]
    assert evaluate(run_folder, *exams, "--output", str(output)) == 0
    record, printed = read(output), capsys.readouterr().out
    assert [exam["exam"] for exam in record["exams"]] == ["held_out[:3]", "letters[:3]"]
    assert [exam["decoding"]["max_completion_length"] for exam in record["exams"]] == [8, 6]  # the run's, the exam's
    for exam in record["exams"]:
        assert list(exam["scores"]) == ["student_0", "student_1", "base"]
        assert list(exam["summaries"]) == ["mean", "best", "weakest"]
        assert exam["version"] in printed and exam["seconds"]["generation"] > 0
    assert set(record["weights"]) == {"student_0", "student_1", "base"} and all(record["weights"].values())
    assert record["versions"]["torch"] and record["template"] == "chat" and record["comparisons"] == 6
    assert "at most 6 tokens an answer" in printed and "6 comparisons in all" in printed and "\x1b" not in printed
    assert sorted(os.listdir(output)) == ["evaluation.json", "held_out_3.parquet", "letters_3.parquet"]
    assert pyarrow.parquet.read_table(output / "letters_3.parquet").num_rows == 9


@pytest.mark.slow
def test_members_are_chosen_and_results_stand_with_the_run(run_folder, data, tmp_path, capsys):
    run = tmp_path / "copy"
    shutil.copytree(run_folder, run)
    assert evaluate(str(run), "--benchmarks", LETTERS, "--data", data, "--members", "teacher_1", "--no-base") == 0
    assert list(read(run / "evaluation")["exams"][0]["scores"]) == ["teacher_1"]
    words = ("--exams", LETTERS, "--data", data, "--teachers", "--no-base")
    with taken(run):
        assert evaluate(f"{run}/checkpoint-1", *words) == 0
    assert f"{run} is training, and may remove this checkpoint" in capsys.readouterr().out
    assert evaluate(f"{run}/checkpoint-1", *words) == 0
    assert "is training" not in capsys.readouterr().out
    (exam,) = read(run / "checkpoint-1" / "evaluation")["exams"]
    assert list(exam["scores"]) == ["teacher_0", "teacher_1", "student_0", "student_1"]
    assert exam["summaries"]["mean"]["accuracy"] is not None and not exam["differences"]


@pytest.mark.slow
def test_the_average_of_the_students_is_one_adapter(run_folder, data, tmp_path):
    exam = ["--exams", LETTERS, "--data", data, "--no-base"]
    assert evaluate(run_folder, *exam, "--average", "--output", str(tmp_path / "with")) == 0
    record = read(tmp_path / "with")
    (taken,) = record["exams"]
    assert list(taken["scores"]) == ["student_0", "student_1", "average"]
    assert set(record["weights"]) == {"student_0", "student_1", "base"}  # there is no folder of the average
    two = np.mean([taken["scores"][name]["accuracy"] for name in ("student_0", "student_1")])
    assert taken["summaries"]["mean"]["accuracy"] == pytest.approx(two)
    run = tmp_path / "run"
    shutil.copytree(run_folder, run)
    shutil.rmtree(run / "student_0")
    students = [f"{run_folder}/student_{i}" for i in range(2)]
    assert cli.main(["evolve", *students, "--operator", "average", "--output", str(run / "student_0")]) == 0
    assert evaluate(str(run), *exam, "--members", "student_0", "--output", str(tmp_path / "alone")) == 0
    written = []
    for folder, who in (("with", "average"), ("alone", "student_0")):
        rows = pyarrow.parquet.read_table(tmp_path / folder / "letters.parquet").to_pylist()
        written.append([row["completion"] for row in rows if row["player"] == who])
    assert written[0] == written[1] and written[0]


@pytest.mark.slow
def test_a_run_of_an_experiment_is_told(run_folder, data, tmp_path, capsys):
    run = changed_run(run_folder, tmp_path / "run")
    Path(run, "job.log").touch()
    exam = ["--exams", f"{LETTERS}[:1]", "--data", data, "--no-base", "--members", "student_0"]
    assert evaluate(run, *exam, "--output", str(tmp_path / "out")) == 0
    told = "is a run of an experiment, which takes its exams again if other scores replace them"
    assert told not in " ".join(capsys.readouterr().out.split())
    assert evaluate(run, *exam) == 0
    assert told in " ".join(capsys.readouterr().out.split())


def test_two_exams_do_not_write_one_file(run_folder, data, capsys):
    assert evaluate(run_folder, "--exams", f"{LETTERS}[:2]", "tests.evaluation.letters:twin", "--data", data) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "the exams 'letters[:2]' and 'letters_2' would both write letters_2.parquet" in told


def test_the_average_is_no_member_of_a_mean(run_folder, data, tmp_path):
    options = ["--exams", f"{LETTERS}[:2]", "--data", data, "--no-base", "--output", str(tmp_path / "out")]
    assert evaluate(run_folder, "--members", "teacher_0", "--average", *options) == 0
    (taken,) = read(tmp_path / "out")["exams"]
    assert list(taken["scores"]) == ["teacher_0", "average"] and not taken["summaries"]


@pytest.mark.slow
def test_servers_answer_as_the_model_itself(run_folder, tiny_model, data, tmp_path, capsys, monkeypatch):
    """Members, their average and the base, on two servers; once those are gone, an error says so."""
    asked = [run_folder, "--exams", LETTERS, "--data", data, "--average", "--teachers"]
    written = {}
    with running(ModelServer(VLLM)) as one, running(ModelServer(VLLM)) as other:
        for server in (one, other):
            server.double.base = AutoModelForCausalLM.from_pretrained(tiny_model).eval()
            server.double.max_model_length = 2048
        urls = ["--vllm-server-base-urls", one.url, other.url]
        assert evaluate(*asked, "--output", str(tmp_path / "vllm"), *urls) == 0
        assert one.double.calls and other.double.calls and not one.double.loaded
    assert evaluate(*asked, "--output", str(tmp_path / "own")) == 0
    for folder in ("vllm", "own"):
        rows = pyarrow.parquet.read_table(tmp_path / folder / "letters.parquet").to_pylist()
        written[folder] = [(row["player"], row["question"], row["completion"]) for row in rows]
    assert written["vllm"] == written["own"] and len({text for _, _, text in written["own"]}) > 1
    assert read(tmp_path / "vllm")["sampler"] == "vllm" and "sampler" not in read(tmp_path / "own")
    capsys.readouterr()
    monkeypatch.setattr("trl_populora.cli.evaluate_options.SERVER_SECONDS", 0.1)
    assert evaluate(*asked, "--output", str(tmp_path / "gone"), *urls) == 1
    assert one.url in capsys.readouterr().out


def test_the_card_shows_an_evaluation_of_the_weights_that_are_there(run_folder, data, tmp_path, caplog):
    run = tmp_path / "copy"
    shutil.copytree(run_folder, run)
    assert evaluate(str(run), "--exams", LETTERS, "--data", data) == 0
    table = json.loads((run / "population.json").read_text())
    found = read_evaluation(str(run))
    text = model_card(table, base_model="org/base", repo_id="me/run", evaluation=found)
    (index,) = yaml.safe_load(text.split("---")[1])["model-index"]
    metrics = [metric for result in index["results"] for metric in result["metrics"]]
    assert index["name"] == "run" and index["results"][0]["dataset"]["type"] == "letters"
    assert {metric["name"] for metric in metrics} >= {"accuracy of student_1, greedy", "accuracy of the mean, greedy"}
    assert "## Evaluation" in text and "| base |" in text
    shutil.copy(run / "student_0" / "adapter_model.safetensors", run / "student_1" / "adapter_model.safetensors")
    (run / "student_0" / "adapter_model.safetensors").unlink()
    assert results_of(str(run))["evaluation"] is None and "is about weights other than those in" in caplog.text


@pytest.mark.slow
def test_a_base_without_a_run(tiny_model, data, tmp_path, capsys):
    options = ["--base", tiny_model, "--data", data, "--output", str(tmp_path / "out")]
    assert evaluate(*options, "--exams", LETTERS) == 0
    record = read(tmp_path / "out")
    assert list(record["exams"][0]["scores"]) == ["base"] and record["comparisons"] == 0
    assert evaluate(*options, "--exams", "held_out", "--types", "code_o", "--max-completion-length", "4") == 0
    assert read(tmp_path / "out")["exams"][0]["groups"] == ["code_o"]
    assert evaluate(*options, "--exams", "held_out", "--types", "code_o") == 2
    assert f"{tiny_model} does not record its max_completion_length" in capsys.readouterr().err


@pytest.mark.slow
def test_several_runs_are_compared(run_folder, data, tmp_path, monkeypatch):
    runs = [run_folder, f"{run_folder}/checkpoint-1"]
    output, prepare, bases = tmp_path / "out", evaluate_command.prepare, []

    def prepared(*arguments):
        assert [base for base in bases if base() is not None] == [], "one base in memory at a time"
        sampler = prepare(*arguments)
        bases.append(weakref.ref(sampler.population.base_model))
        return sampler

    monkeypatch.setattr(evaluate_command, "prepare", prepared)
    assert evaluate(*runs, "--exams", LETTERS, "held_out[:2]", "--data", data, "--output", str(output)) == 0
    record = read(output)
    players = [f"{name}/student_{i}" for name in ("run", "checkpoint-1") for i in range(2)]
    for exam in record["exams"]:
        assert list(exam["scores"]) == [*players, "base"]
        assert ("checkpoint-1/mean", "run/mean") in {(one["of"], one["to"]) for one in exam["differences"]}
    assert set(record["weights"]) == {*players, "base"} and list(record["runs"]) == ["run", "checkpoint-1"]
    assert record["comparisons"] == 2 * (2 * 3 + 1)
    assert len(bases) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings, exam, words, settled",
    [
        (
            {"prompt_template": "base"},
            LETTERS,
            "prompt_template is 'chat' in .* and 'base' in",
            ["--template", "base"],
        ),
        ({"prompt_template": None}, LETTERS, "does not record its prompt_template; set it with --template", None),
        ({"max_completion_length": 9}, "held_out[:1]", "--max-completion-length", ["--max-completion-length", "4"]),
        ({"max_completion_length": 9}, LETTERS, None, None),  # the exam has its own
        (
            {"chat_template_kwargs": {"enable_thinking": False}},
            LETTERS,
            "chat_template_kwargs is {} in .* and {'enable_thinking': False} in",
            ["--template", "base"],
        ),
        ({"model": "tiny"}, LETTERS, "the base is .*/tiny_model.* and tiny in .*--base", None),
    ],
)
def test_runs_that_were_prompted_differently_are_refused(
    run_folder, data, tmp_path, capsys, settings, exam, words, settled
):
    other = changed_run(run_folder, tmp_path / "other", **settings)
    argv = [run_folder, other, "--exams", exam, "--data", data, "--limit", "1", "--output", str(tmp_path / "out")]
    if words is None:
        assert evaluate(*argv) == 0
        return
    assert evaluate(*argv) == 2
    import re

    assert re.search(words, capsys.readouterr().err.replace("\n", " "))
    if settled:
        assert evaluate(*argv, *settled) == 0


@pytest.mark.slow
def test_the_chat_template_is_that_of_the_run(run_folder, data, tmp_path, capsys):
    """A script may train with a tokenizer of its own."""
    other = changed_run(run_folder, tmp_path / "other")
    saved = tmp_path / "other" / "chat_template.jinja"
    saved.write_text("Well. " + saved.read_text())
    options, lengths = ["--exams", LETTERS, "--data", data, "--limit", "1", "--no-base"], []
    for run in (run_folder, other):
        assert evaluate(run, *options, "--output", str(tmp_path / "out")) == 0
        lengths.append(read(tmp_path / "out")["exams"][0]["prompt_tokens"])
    assert lengths[0] < lengths[1]
    capsys.readouterr()
    assert evaluate(run_folder, other, *options, "--output", str(tmp_path / "both")) == 2
    assert "the chat templates saved in" in capsys.readouterr().err


@pytest.mark.slow
def test_exams_of_other_types_or_styles_are_not_compared(run_folder, tmp_path, capsys):
    state = read(Path(run_folder), "self_play.json")
    other = tmp_path / "other"
    for change, words, settled in (
        ({"names": ["code_i"], "kwargs": {"code_i": {"style": "compact"}}}, "--types", ["--types", "code_o"]),
        ({"names": ["code_o"], "kwargs": {"code_o": {"style": "full"}}}, "--style", ["--style", "full"]),
    ):
        changed_run(run_folder, other)
        changed = state["source"] | {"task_types": state["source"]["task_types"] | change}
        (other / "self_play.json").write_text(json.dumps(state | {"source": changed}))
        argv = [run_folder, str(other), "--limit", "1", "--no-base", "--output", str(tmp_path / "out")]
        assert evaluate(*argv) == 2
        error = capsys.readouterr().err
        assert words in error and "code_o" in error
        assert evaluate(*argv, *settled) == 0
        shutil.rmtree(other)


@pytest.mark.parametrize(
    "options, words",
    [
        (["--exams", "gsm8"], "Did you mean 'gsm8k'"),
        (["--exams", "gsm8k", "--data", "/nowhere"], "/nowhere/gsm8k.jsonl cannot be read: No such file"),
        (["--exams", "tests.evaluation.letters:NONE"], "has no 'NONE'"),
        (["--limit", "0"], "--limit 0 must be at least 1"),
        (["--members", "student_9"], "no such members in .*student_9.*choose from"),
        (["--samples", "4"], "Set a temperature above 0"),
        (["--samples", "few"], "--samples few must be a whole number of at least 1, or auto"),
        (["--samples", "0"], "--samples 0 must be a whole number of at least 1"),
        (["--temperature", "nan"], "--temperature nan must be a number of at least 0"),
        (["--temperature", "-1"], "--temperature -1.0 must be a number of at least 0"),
        (["--batch-size", "0"], "--batch-size 0 must be at least 1"),
        (["--samples", "auto", "--temperature", "1"], "leave --temperature out"),
        (["--output", "/proc/none"], "--output='/proc/none' cannot be written: No such file"),
        (["--vllm-engine-kwargs", "{}"], "are for --use-vllm"),
        (["--use-vllm", "--vllm-engine-kwargs", "max_num_seqs=4"], "max_num_seqs=4 is no mapping in JSON"),
        (["--use-vllm", "--vllm-engine-kwargs", "[4]"], r"\[4\] is no mapping in JSON"),
        (["--use-vllm", "--vllm-engine-kwargs", '{"dtype": "float16"}'], "must leave dtype out"),
        (["--use-vllm", "--vllm-engine-kwargs", "[]"], r"\[\] is no mapping in JSON"),
        (["--vllm-server-base-urls", "http://a:1", "http://a:1/"], "has http://a:1 more than once"),
        (["--max-completion-length", "0"], "--max-completion-length 0 must be at least 1"),
        (
            ["--exams", "held_out[:2]", "held_out", "--limit", "2"],
            "with limit=2: these names give only the exams .*held_out.*each exam once",
        ),
        (["--exams", "tests.evaluation.letters:no_grader"], "'ungraded': its grader .* must be a Grader class"),
        (["--exams", "tests.evaluation.letters:held_out"], "calls itself 'held_out', as an exam of this package"),
        (["--exams", "tests.evaluation.letters:gsm8k", "--data", "."], "calls itself 'gsm8k'"),
        (["--exams", "tests.evaluation.letters:raises"], r"letters:raises\(\) failed \(KeyError: 'data'\)"),
    ],
)
def test_mistakes_are_told_before_anything_is_loaded(run_folder, monkeypatch, capsys, options, words):
    import re

    monkeypatch.setattr("trl_populora.cli.opening.load_base", None)
    assert evaluate(run_folder, *options) == 2
    assert re.search(words, capsys.readouterr().err.replace("\n", " "))


def test_missing_vllm_is_told_before_anything_is_loaded(run_folder, monkeypatch, capsys):
    monkeypatch.setattr("trl_populora.cli.opening.load_base", None)
    monkeypatch.setattr("trl_populora.extras.is_installed", lambda module: module != "vllm")
    assert evaluate(run_folder, "--use-vllm") == 2
    assert "--use-vllm" in (told := capsys.readouterr().err) and "trl-populora[vllm]" in told


def test_a_file_without_a_column_is_refused(run_folder, data, tmp_path, capsys):
    (tmp_path / "letters.jsonl").write_text('{"word": "sun", "sort": "short"}\n')
    assert evaluate(run_folder, "--exams", LETTERS, "--data", data) == 2
    assert "has no column 'kind'" in capsys.readouterr().err
    (tmp_path / "letters.jsonl").write_text('{"word": "sun", "kind": "short"}\n{"word": 5, "kind": "short"}\n')
    assert evaluate(run_folder, "--exams", LETTERS, "--data", data) == 2
    told = capsys.readouterr().err
    assert "record 2 of" in told and "is no question (TypeError: object of type 'int' has no len())" in told


@pytest.mark.parametrize(
    "argv, words",
    [
        ([], "name a run to evaluate, or a model with --base"),
        (["--base", "tiny", "--no-base"], "need a run"),
        (["--base", "tiny", "--exams", "held_out"], "--output"),
        (["--base", "tiny", "--exams", "held_out", "--output", "out"], "needs task types"),
    ],
)
def test_what_to_evaluate_must_be_clear(argv, words, capsys):
    assert evaluate(*argv) == 2
    assert words in capsys.readouterr().err


def test_a_folder_that_is_no_run_and_runs_without_a_folder_for_results(run_folder, tmp_path, capsys):
    assert evaluate(str(tmp_path)) == 2
    assert "holds no population.json" in capsys.readouterr().err
    assert evaluate(run_folder, f"{run_folder}/checkpoint-1") == 2
    assert "--output FOLDER" in capsys.readouterr().err
    assert evaluate(run_folder, run_folder, "--output", str(tmp_path)) == 2
    assert "is named twice" in capsys.readouterr().err


def test_a_tokenizer_without_a_chat_template(tmp_path, data, capsys):
    base = tmp_path / "base"
    tokenizer = tiny.tiny_tokenizer()
    tokenizer.chat_template = None
    tokenizer.save_pretrained(base)
    tiny.tiny_model().save_pretrained(base)
    argv = ["--base", str(base), "--exams", LETTERS, "--data", data, "--limit", "1", "--output", str(tmp_path / "out")]
    assert evaluate(*argv) == 2
    assert "has no chat template: use --template base" in capsys.readouterr().err
    assert evaluate(*argv, "--template", "base") == 0


def test_questions_that_do_not_fit_are_told(data, tmp_path, capsys):
    base = tmp_path / "base"
    tiny.tiny_tokenizer().save_pretrained(base)
    tiny.tiny_model(max_position_embeddings=32).save_pretrained(base)
    options = ["--base", str(base), "--exams", LETTERS, "--data", data, "--limit", "2"]
    assert evaluate(*options, "--output", str(tmp_path / "out")) == 0
    printed = capsys.readouterr().out
    assert "letters[:2]: 2 prompts and answers may have up to" in printed and "the base supports 32" in printed


def test_published_settings_are_taken_on_request(tiny_model, data, tmp_path):
    sampled = "tests.evaluation.letters:SAMPLED"
    options = ["--base", tiny_model, "--data", data, "--limit", "2", "--output", str(tmp_path / "out")]
    assert evaluate(*options, "--exams", sampled, LETTERS, "--samples", "auto") == 0
    first, second = read(tmp_path / "out")["exams"]
    assert (first["decoding"]["samples"], first["decoding"]["temperature"]) == (4, 0.7)
    assert list(first["scores"]["base"]["pass_at_k"]) == ["1", "2", "4"]
    assert (second["decoding"]["samples"], second["decoding"]["temperature"]) == (1, 0.0)


@pytest.mark.slow
def test_a_stopped_evaluation_goes_on(run_folder, data, tmp_path, capsys, monkeypatch):
    argv = [run_folder, "--exams", LETTERS, "--data", data, "--batch-size", "4"]
    assert evaluate(*argv, "--output", str(tmp_path / "whole")) == 0
    real, calls = evaluation_view.EvaluationView.progress, []

    def stop(view, done, total):
        calls.append(done)
        if len(calls) == 3:
            raise KeyboardInterrupt
        real(view, done, total)

    monkeypatch.setattr(evaluation_view.EvaluationView, "progress", stop)
    output = tmp_path / "stopped"
    assert evaluate(*argv, "--output", str(output)) == 130
    assert "the same command continues from there" in capsys.readouterr().out
    assert [name.endswith(".partial.jsonl") for name in os.listdir(output)] == [True]
    monkeypatch.setattr(evaluation_view.EvaluationView, "progress", real)
    assert evaluate(*argv, "--output", str(output)) == 0
    assert "8 of 24 answers exist already" in capsys.readouterr().out
    tables = [pyarrow.parquet.read_table(tmp_path / name / "letters.parquet") for name in ("whole", "stopped")]
    assert tables[0].drop_columns("seconds").equals(tables[1].drop_columns("seconds"))
    first, second = (read(tmp_path / name)["exams"][0] for name in ("whole", "stopped"))
    assert first | {"seconds": 0} == second | {"seconds": 0}
    assert sorted(os.listdir(output)) == ["evaluation.json", "letters.parquet"]


@pytest.mark.slow
def test_a_full_disk_costs_no_answers_that_are_there(run_folder, data, tmp_path, capsys, monkeypatch):
    argv = [run_folder, "--exams", LETTERS, "--data", data, "--batch-size", "4", "--output", str(tmp_path)]
    real, calls = answers.append_lines, []

    def append(path, records):
        calls.append(path)
        if len(calls) == 3:
            raise OSError(28, "No space left on device", path)
        real(path, records)

    monkeypatch.setattr(answers, "append_lines", append)
    assert evaluate(*argv) == 1
    told = f"No space left on device: '{calls[0]}'. The answers so far are in {tmp_path}; the same command"
    assert told in capsys.readouterr().out
    monkeypatch.setattr(answers, "append_lines", real)
    assert evaluate(*argv) == 0
    assert "8 of 24 answers exist already" in capsys.readouterr().out


@pytest.mark.slow
def test_a_grader_that_fails_loses_neither_answers_nor_the_other_exams(tiny_model, data, tmp_path, capsys):
    options = ["--base", tiny_model, "--data", data, "--limit", "2", "--output", str(tmp_path / "out")]
    assert evaluate(*options, "--exams", "tests.evaluation.letters:BROKEN", LETTERS) == 1
    printed = capsys.readouterr().out
    assert "NotImplementedError, on every answer" in printed and "letters[:2]" in printed
    assert [exam["exam"] for exam in read(tmp_path / "out")["exams"]] == ["letters[:2]"]
    assert any(name.startswith("broken_2-") for name in os.listdir(tmp_path / "out"))
    before = read(tmp_path / "out")
    assert evaluate(*options, "--exams", "tests.evaluation.letters:BROKEN") == 1
    assert "Scores:" not in capsys.readouterr().out and read(tmp_path / "out") == before  # nothing is no result


def test_spared_answers_are_counted_and_said(run_folder, tmp_path, capsys, monkeypatch):
    from trl_populora.executor import Execution, Executor, Status

    monkeypatch.setattr(
        Executor, "run_many", lambda self, jobs: [Execution(Status.INFRA_ERROR, (), 0.0, 0)] * len(jobs)
    )
    gold = "```input\n1, 2\n```"
    monkeypatch.setattr("trl_populora.generation.TransformersSampler.completion", lambda s, p, i: _says(gold, p, i))
    argv = [run_folder, "--types", "code_i", "--limit", "2", "--no-base", "--output", str(tmp_path)]
    assert evaluate(*argv) == 0
    assert "student_0: 2 answers not counted: the executor failed, twice." in capsys.readouterr().out
    score = read(tmp_path)["exams"][0]["scores"]["student_0"]
    assert score["verdicts"] == {"spared": 2} and score["accuracy"] is None


def _says(text, prompt_ids, ids):
    from trl_populora.generation import Completion

    return Completion(text, prompt_ids, ids)


def stored_tasks(folder):
    return json.loads(Path(folder, "self_play.json").read_text())["source"]["buffer"]["tasks"]


@pytest.mark.slow
def test_the_default_exam_must_fit_the_run(run_folder, tmp_path, capsys):
    own = changed_run(run_folder, tmp_path / "own", seed_families=["add"])
    assert evaluate(own, "--limit", "3", "--no-base", "--members", "student_0") == 0
    told = capsys.readouterr().out
    assert "3 of 3 questions are of families that are not in the run's seed_families" in told
    assert "questions with an answer" not in told
    (tmp_path / "seeds.jsonl").write_text("".join(json.dumps(one) + "\n" for one in stored_tasks(run_folder)[:2]))
    assert evaluate(own, "--exams", f"tasks:{tmp_path / 'seeds.jsonl'}", "--no-base", "--members", "student_0") == 0
    assert f"tasks of {own} show 2 of 2 questions with an answer" in capsys.readouterr().out
    on_rows = changed_run(run_folder, tmp_path / "rows", num_teachers=0)
    assert evaluate(on_rows) == 2
    assert "was trained on a dataset and has no default exam: name one with --exams" in capsys.readouterr().err
