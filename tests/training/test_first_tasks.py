"""What self-play begins with, where the tokenizer changes texts. `test_reserved.py` has the tasks of exams."""

from functools import partial

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tests.code_tasks import code_types
from tests.self_play.test_read_back import VOCABULARY, qwen
from tests.training.conftest import make_config
from trl_populora.self_play import TokenLimits
from trl_populora.tasks import read_back
from trl_populora.training.first_tasks import first_tasks, token_limits


def lower():
    tokenizer = Tokenizer(models.BPE(vocab=VOCABULARY, merges=[]))
    tokenizer.normalizer, tokenizer.decoder = normalizers.Lowercase(), decoders.ByteLevel()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")


def test_a_tokenizer_that_changes_the_wording_is_told_and_not_compared(tmp_path, caplog):
    args, types = make_config(tmp_path), code_types("compact")
    kept = token_limits(args, types, len, partial(read_back, qwen()), None)
    assert kept.read("\u212a") == "K" and not caplog.messages
    changed = token_limits(args, types, len, partial(read_back, lower()), None)
    assert changed.read("\u212a") == "\u212a"
    (told,) = caplog.messages
    assert "changes the wording of code_o tasks: the tokenizer turns" in told


def test_seed_tasks_that_it_changes_are_replaced(tmp_path):
    args, types = make_config(tmp_path, task_types=["code_o"]), {"code_o": code_types("compact")["code_o"]}
    first, *_ = types["code_o"].seeds(args.seed_tasks, seed=args.seed)
    program = first.payload.program
    whole = first_tasks(args, types, TokenLimits(len, prompt=10**6, answer=99))
    other = first_tasks(
        args, types, TokenLimits(len, prompt=10**6, answer=99, read=lambda text: text.replace(program, "another"))
    )
    kept = [{task.payload.program for task in buffer.tasks("code_o")} for buffer in (whole, other)]
    assert program in kept[0] and program not in kept[1]
    assert len(whole.tasks("code_o")) == args.seed_tasks
