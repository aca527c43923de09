"""What the last push of a run brings."""

import json
import logging
import zlib
from types import SimpleNamespace

import pytest

from trl_populora.run_files.checkpoint import FORMAT_VERSION
from trl_populora.training import uploading


@pytest.mark.parametrize(
    ("strategy", "content", "brought"),
    [
        ("checkpoint", "text", {"checkpoint"}),
        ("all_checkpoints", "text", {"checkpoint", "place"}),
        ("every_save", "text", set()),
        ("checkpoint", "tex!", set()),  # damaged: it is left out, and the population is pushed
    ],
)
def test_the_last_push_brings_a_whole_checkpoint_or_none(tmp_path, monkeypatch, caplog, strategy, content, brought):
    folder = tmp_path / "checkpoint-2"
    folder.mkdir()
    (folder / "file").write_text(content)
    manifest = {"format": FORMAT_VERSION, "files": {"file": [4, zlib.crc32(b"text")]}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    names = ("hub_private_repo", "hub_token", "hub_revision")
    args = SimpleNamespace(output_dir=str(tmp_path), hub_strategy=strategy, **dict.fromkeys(names))
    silent = SimpleNamespace(on_push_begin=lambda *_: None)
    trainer = SimpleNamespace(
        args=args, callback_handler=silent, state=None, control=None, hub_model_id="user/repo", base_model_name="base"
    )
    trainer._finish_current_push = lambda: None
    pushed = []

    def push_population(folder, **settings):
        pushed.append(settings)
        return SimpleNamespace(send=lambda: "address")

    monkeypatch.setattr(uploading, "card_facts", lambda trainer: {})
    monkeypatch.setattr(uploading, "push_population", push_population)
    with caplog.at_level(logging.WARNING):
        assert uploading.push(trainer, None, blocking=True) == "address"
    assert set(pushed[0]) & {"checkpoint", "place"} == brought
    assert ("is not uploaded, because it is not complete" in caplog.text) == (content == "tex!")
    args.hub_private_repo = True
    uploading.push(trainer, None, blocking=True, private=False)
    assert [one["private"] for one in pushed] == [None, False]
