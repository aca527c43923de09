"""trackio, wandb and TensorBoard for real, without network: what they have stored after a run is read back."""

import importlib.util
import json
import os
import re
import shutil
import sqlite3
import struct
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from datasets import Dataset
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar.layout_pb2 import Layout

from tests.processes import run_forks
from tests.tiny import lora, tiny_model, tiny_tokenizer
from tests.training.conftest import hash_reward
from tests.training.tracked import main
from trl_populora.training import PopulationSelfPlayTrainer
from trl_populora.training.trackers import TrackerError, check_trackers


ROOT = Path(__file__).parents[2]
OFFLINE = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "COLUMNS": "200"}
OWN = {"player", "role", "type", "verdict"}  # columns that we add to TRL's table of completions


@pytest.fixture(scope="module")
def tracked(tmp_path_factory):
    """Folder of a run that reported to all three, and what it said."""
    folder = tmp_path_factory.mktemp("tracked")
    places = {"WANDB_DIR": folder, "TENSORBOARD_LOGGING_DIR": folder / "tensorboard"}
    run_forks(main, [OFFLINE | places], str(folder), folder=folder)
    shutil.copytree(os.environ["TRACKIO_DIR"], folder / "trackio")
    assert not (folder / "network.txt").exists(), (folder / "network.txt").read_text()
    return folder, json.loads((folder / "told.json").read_text())


def python(*arguments, **environment):
    environment = (
        os.environ | OFFLINE | {"PYTHONPATH": str(ROOT)} | {name: str(value) for name, value in environment.items()}
    )
    return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=280)


def scalars(log):
    """What a tracker gets of a log of training."""
    return {f"train/{name}": value for name, value in log.items() if name != "step"}


def first_log(told):
    return next(log for log in told["logs"] if "loss" in log)


def rates(summary):
    pairs = zip(summary["window_solved"], summary["window_attempts"])
    return [[s / n if n else None for s, n in zip(*rows)] for rows in pairs]


@pytest.mark.slow
def test_tensorboard(tracked):
    folder, told = tracked
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    tags, log = events.Tags()["scalars"], first_log(told)
    assert set(scalars(log)) <= set(tags) and "eval/held_out_2/mean" in tags
    for name, value in scalars(log).items():
        (event,) = [one for one in events.Scalars(name) if one.step == 2]
        assert event.value == pytest.approx(value, rel=1e-5)

    def texts(name):
        return [(one.step, one.tensor_proto.string_val[0].decode()) for one in events.Tensors(f"{name}/text_summary")]

    (two, matrix), (four, _) = texts("tables/solve_rates")
    assert (two, four) == (2, 4)
    shown = [[f"{rate:.3g}" if rate is not None else "" for rate in row] for row in rates(told["summaries"][1])]
    assert matrix.splitlines()[2:] == [f"| teacher_{i} | {' | '.join(row)} |" for i, row in enumerate(shown)]
    ((step, lineage),) = texts("tables/lineage")
    assert step == 2 and len(lineage.splitlines()) == 2 + len(told["lineage"])
    ((_, alarms),) = texts("tables/alarms")  # it goes on, and is told once
    assert alarms.splitlines()[2:] == ["| 0 | 0 | a test: nothing is wrong |"]
    assert '"id": "teacher_0"' in texts("population")[0][1]

    (layout,) = events.Tensors("custom_scalars__config__")
    layout = Layout.FromString(layout.tensor_proto.string_val[0])
    charts = {chart.title: chart.multiline.tag[0] for category in layout.category for chart in category.chart}
    overlaid = {title: [tag for tag in tags if re.match(pattern, tag)] for title, pattern in charts.items()}
    members = ["teacher_0", "teacher_1", "student_0", "student_1"]
    assert sorted(overlaid["reward/member"]) == sorted(f"train/reward/{name}" for name in members)
    assert len(overlaid["pairs/solve_rate/teacher/student"]) >= 2


def wandb_records(path, block=32_768, header=7):
    """Records of a `.wandb` file: protobuf messages in LevelDB's log format."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, parts = path.read_bytes(), header, b""
    while place + 7 <= len(data):
        left = block - place % block
        if left < 7:  # padding
            place += left
            continue
        _, size, kind = struct.unpack("<IHB", data[place : place + 7])
        parts += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(parts)
            parts = b""


def wandb_values(items):
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


@pytest.mark.slow
def test_wandb(tracked):
    folder, told = tracked
    (path,) = (folder / "wandb").glob("offline-run-*/run-*.wandb")
    records = list(wandb_records(path))
    history = [wandb_values(one.history.item) for one in records if one.HasField("history")]
    (row, _) = [row for row in history if "train/loss" in row]
    for name, value in scalars(first_log(told)).items():
        assert row[name] == pytest.approx(value)
    assert row["train/global_step"] == 2
    config = {}
    for one in records:
        config |= wandb_values(one.config.update)
    assert config["num_teachers"] == 2 and config["evolution_kwargs"]["fraction"] == 0.25  # resolved
    assert [one["id"] for one in config["population"]["members"]] == [
        "teacher_0",
        "teacher_1",
        "student_0",
        "student_1",
    ]
    assert [one.run.display_name for one in records if one.HasField("run")] == ["tracked"]
    (alert,) = [one.alert for one in records if one.HasField("alert")]
    assert alert.text == "a test: nothing is wrong" and alert.level == "WARN" and len(alert.title) < 64

    def table(key, step):
        (row,) = [row for row in history if f"{key}/path" in row and row["train/global_step"] == step]
        data = json.loads((path.parent / "files" / row[f"{key}/path"]).read_text())
        return data["columns"], data["data"]

    for step in (2, 4):
        columns, rows = table("tables/solve_rates", step)
        assert columns == ["teacher", "student_0", "student_1"]
        assert [row[1:] for row in rows] == rates(told["summaries"][step - 1])
    columns, rows = table("tables/lineage", 2)
    assert [row[columns.index("operator")] for row in rows] == [event["operator"] for event in told["lineage"]]
    completions = [row["completions/path"] for row in history if "completions/path" in row]
    columns = json.loads((path.parent / "files" / completions[-1]).read_text())["columns"]
    assert set(columns) > OWN


@pytest.mark.slow
def test_trackio(tracked):
    folder, told = tracked
    store = sqlite3.connect(folder / "trackio" / "populora.db")
    rows = [
        json.loads(metrics) for (metrics,) in store.execute("select metrics from metrics where run_name = 'tracked'")
    ]
    (row, _) = [row for row in rows if "train/loss" in row]
    for name, value in scalars(first_log(told)).items():
        assert row[name] == pytest.approx(value)
    tables = {row["train/global_step"]: row for row in rows if "tables/solve_rates" in row}
    for step in (2, 4):
        matrix = tables[step]["tables/solve_rates"]["_value"]
        assert [[row["student_0"], row["student_1"]] for row in matrix] == rates(told["summaries"][step - 1])
    lineage = tables[2]["tables/lineage"]["_value"]
    assert [row["member"] for row in lineage] == [f"{one['slot']}@{one['version']}" for one in told["lineage"]]
    assert list(store.execute("select text, level, step from alerts")) == [("a test: nothing is wrong", "warn", 2)]
    (config,) = [json.loads(config) for (config,) in store.execute("select config from configs")]
    assert config["evolution_kwargs"]["fraction"] == 0.25 and len(config["population"]["members"]) == 4
    (completions, *_) = [row["completions"]["_value"] for row in rows if row.get("completions", {}).get("_value")]
    assert set(completions[0]) > OWN
    store.close()


@pytest.mark.slow
def test_the_table_of_completions(tracked):
    folder, told = tracked
    for step in (2, 4):
        table = pd.read_parquet(folder / "run" / "completions" / f"completions_{step:05d}.parquet")
        rounds = pd.read_parquet(folder / "run" / "rounds" / f"round_{step - 1:06d}.parquet")
        rounds = rounds[rounds.learned].reset_index(drop=True)
        assert table.player.tolist() == rounds.member.tolist() and table.role.tolist() == rounds.role.tolist()
        assert table.type.tolist() == rounds.type.tolist() == ["code_o"] * 12
        valid, solved = rounds.valid.tolist(), rounds.solved.tolist()
        teachers = ["valid" if ok else reason for ok, reason in zip(valid, rounds.reason)][:4]
        students = [
            "solved" if right else "wrong" if ok else reason
            for ok, right, reason in zip(valid[4:], solved[4:], rounds.reason[4:])
        ]
        assert table.verdict.tolist() == teachers + students
        assert table.advantage.tolist() == pytest.approx(told["advantages"][step - 1])
        assert {"self_play_reward", "hash_reward"} < set(table)


def test_the_table_of_completions_on_a_dataset(config):
    args = config(num_teachers=0, max_steps=2, log_completions=True, num_completions_to_print=1)
    prompts = Dataset.from_dict({"prompt": [f"say {i}" for i in range(8)]})
    model, tokenizer = tiny_model(), tiny_tokenizer()
    trainer = PopulationSelfPlayTrainer(
        model, hash_reward, args, train_dataset=prompts, processing_class=tokenizer, peft_config=lora()
    )
    trainer.train()
    table = pd.read_parquet(Path(args.output_dir, "completions", "completions_00002.parquet"))
    rounds = pd.read_parquet(Path(args.output_dir, "rounds", "round_000001.parquet"))
    assert table.player.tolist() == rounds.member.tolist() and set(table.player) == {"student_0", "student_1"}
    assert table.prompt.tolist() == rounds.prompt.tolist()
    assert not {"role", "type", "verdict"} & set(table)


@pytest.mark.slow
def test_the_dashboard_of_trackio(tracked):
    folder, _ = tracked
    code = """
import trackio, urllib.request
server, url, *_ = trackio.show("populora", open_browser=False, block_thread=False)
ask = urllib.request.Request(url.rstrip("/") + "/api/get_runs_for_project", b'{"project": "populora"}',
                             {"Content-Type": "application/json"})
print("PAGE", urllib.request.urlopen(url, timeout=60).read(100).decode().lower())
print("RUNS", urllib.request.urlopen(ask, timeout=60).read().decode())
server.close()
"""
    done = python("-c", code, TRACKIO_DIR=folder / "trackio", NO_PROXY="*")
    assert "PAGE <!doctype html>" in done.stdout, done.stderr[-2000:]
    assert "tracked" in done.stdout.split("RUNS")[1]


@pytest.mark.slow
def test_a_tracker_that_fails_costs_a_warning(make_trainer, tmp_path, monkeypatch, caplog):
    from torch.utils.tensorboard import SummaryWriter
    from transformers.utils import logging

    def full(*args, **kwargs):
        raise OSError("no space left on device")

    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "events"))
    trainer = make_trainer(max_steps=3, report_to="tensorboard")
    for method in ("add_scalar", "add_custom_scalars"):
        monkeypatch.setattr(SummaryWriter, method, full)
    logging.enable_propagation()
    try:
        trainer.train()
    finally:
        logging.disable_propagation()
    assert trainer.state.global_step == 3
    warnings = [one.message for one in caplog.records if "TensorBoardCallback failed" in one.message]
    assert len(warnings) == 1 and "no space left" in warnings[0]


def test_a_tracker_that_is_missing_is_refused_before_the_model_is_loaded(config, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "trl_populora.training.trackers.find_spec", lambda name: None if name in ("wandb", "trackio") else find(name)
    )
    check_trackers(["tensorboard"])
    with monkeypatch.context() as patch:  # one of several packages is enough
        patch.setattr(
            "trl_populora.training.trackers.PACKAGES", {"wandb": ("no_such", "json"), "trackio": ("no_such",)}
        )
        check_trackers(["wandb"])
        with pytest.raises(ValueError, match="trackio is not installed"):
            check_trackers(["wandb", "trackio"])
    with pytest.raises(ValueError, match="flyte is not installed"):  # whose name in transformers is another
        check_trackers(["tensorboard", "flyte"])
    args = config(report_to=["tensorboard", "wandb", "trackio"])
    with pytest.raises(ValueError, match="wandb, trackio is not installed. Run `pip install wandb trackio`"):
        PopulationSelfPlayTrainer("no/such-model", args=args)


def test_a_tracker_that_cannot_be_opened_is_named(make_trainer, tmp_path, monkeypatch):
    (tmp_path / "events").write_text("")
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "events"))
    trainer = make_trainer(report_to="tensorboard")
    with pytest.raises(TrackerError, match="TensorBoardCallback could not open .*events.*or leave the tracker"):
        trainer.train()
    assert not trainer.folder.begun
