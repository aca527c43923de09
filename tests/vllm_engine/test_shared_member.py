"""A member that was pushed and pulled is served by vLLM from the folder that came back, as the card says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest
from peft import PeftModel
from transformers import AutoModelForCausalLM

from tests.evaluation import letters
from tests.hub.loopback import LoopbackHub
from tests.vllm_engine.conftest import LLM_KWARGS, population_on
from trl_populora import cli
from trl_populora.generation.engines.vllm_engine import default_group_kept


PROMPT = "a prompt of some words"


def populora(hub: LoopbackHub, home: Path, *argv: str) -> None:
    own = {"HF_ENDPOINT": hub.url, "HF_HOME": str(home), "HF_TOKEN": "hf_user", "NO_PROXY": "*"}
    own |= {"HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}
    command = [sys.executable, "-m", "trl_populora.cli", *argv]
    done = subprocess.run(command, env=os.environ | own, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def pulled(engine_model, tokenizer, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("shared")
    population_on(engine_model, teachers=1, students=2).save(str(folder / "run"))
    tokenizer.save_pretrained(folder / "run")
    hub = LoopbackHub()
    try:
        populora(hub, folder / "home", "push", str(folder / "run"), "--to", "user/repo")
        populora(hub, folder / "home", "pull", "user/repo", "--output", str(folder / "pulled"))
    finally:
        hub.close()
    return folder / "pulled"


def test_vllm_serves_a_pulled_member(engine_model, tokenizer, pulled):
    from vllm import LLM, SamplingParams
    from vllm.lora.request import LoRARequest

    engine = LLM(engine_model, enable_lora=True, max_lora_rank=8, dtype="float32", max_model_len=512, **LLM_KWARGS)
    ids = tokenizer(PROMPT)["input_ids"]
    greedy = SamplingParams(temperature=0.0, max_tokens=16, detokenize=False)
    drawn = {}
    for number, name in enumerate(("teacher_0", "student_0", "student_1")):
        request = LoRARequest(name, 1000 + number, str(pulled / name))
        output = engine.generate({"prompt_token_ids": ids}, greedy, lora_request=request, use_tqdm=False)
        drawn[name] = list(output[0].outputs[0].token_ids)
        base = AutoModelForCausalLM.from_pretrained(engine_model, dtype="float32")
        model = PeftModel.from_pretrained(base, str(pulled), subfolder=name)  # the lines of the card
        tokens = tokenizer(PROMPT, return_tensors="pt")
        written = model.generate(**tokens, max_new_tokens=16, do_sample=False)[0, len(ids) :].tolist()
        assert drawn[name] == written
    assert len(set(map(tuple, drawn.values()))) == 3
    with default_group_kept():
        engine.llm_engine.engine_core.shutdown()


def test_the_command_evaluates_with_vllm(engine_model, pulled, tmp_path):
    """Members and the base give the same greedy answers as with transformers."""
    exam = ["--exams", "tests.evaluation.letters:LETTERS", "--data", letters.write_data(tmp_path), "--limit", "4"]
    command = ["evaluate", str(pulled), "--base", engine_model, "--template", "chat", *exam]
    kwargs = json.dumps(LLM_KWARGS | {"max_model_len": 512})
    assert cli.main([*command, "--output", str(tmp_path / "vllm"), "--use-vllm", "--vllm-engine-kwargs", kwargs]) == 0
    assert cli.main([*command, "--output", str(tmp_path / "own")]) == 0
    answers = [
        pyarrow.parquet.read_table(tmp_path / name / "letters_4.parquet").to_pylist() for name in ("vllm", "own")
    ]
    drawn, expected = ([(row["player"], row["question"], row["completion"]) for row in rows] for rows in answers)
    assert drawn == expected and {player for player, _, _ in drawn} == {"student_0", "student_1", "base"}
