"""Rows for causal language models: which tokens carry loss, and that the loss is that of one row at a time."""

import torch
import torch.nn.functional as F

from tests.tiny import begin_texts, tiny_tokenizer
from trl_populora.integrations.lightning import Example, Row, causal_lm_loss, collate, encode
from trl_populora.integrations.lightning.completions import IGNORED
from trl_populora.integrations.lightning.warm_start import learning_rate_factor


def example(prompt: str, completion: str) -> Example:
    return Example(({"role": "user", "content": prompt},), completion)


def test_encode_continues_the_rendered_prompt_and_ends_the_turn(tokenizer):
    (row,) = encode(tokenizer, [example("2+2", "4")])
    assert tokenizer.decode(row.ids) == ("<|im_start|>user\n2+2<|im_end|>\n<|im_start|>assistant\n4<|im_end|>")
    assert tokenizer.decode(row.ids[row.prompt :]) == "4<|im_end|>"


def test_collate_labels_completions_only(tokenizer):
    rows = [Row((5, 6, 7, 8), 3), Row((9, 10, 11), 1)]
    batch = collate(rows, pad_token_id=1)
    assert batch["input_ids"].tolist() == [[5, 6, 7, 8], [1, 9, 10, 11]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1], [0, 1, 1, 1]]
    assert batch["labels"].tolist() == [[IGNORED, IGNORED, IGNORED, 8], [IGNORED, IGNORED, 10, 11]]
    assert batch["logits_to_keep"] == 3


def test_loss_equals_a_row_by_row_oracle(model, tokenizer):
    """One row at a time, without padding, summing -log p of each completion token in a loop."""
    rows = encode(tokenizer, [example("ab", "xyz"), example("longer prompt", "q")])
    expected = []
    for row in rows:
        log_probs = F.log_softmax(model(torch.tensor([row.ids])).logits[0].double(), dim=-1)
        expected.append(-sum(log_probs[at - 1, row.ids[at]] for at in range(row.prompt, len(row.ids))).item())

    sums, counts = causal_lm_loss(model, collate(rows, tokenizer.pad_token_id))
    torch.testing.assert_close(sums.double(), torch.tensor(expected).double(), rtol=1e-5, atol=1e-5)
    assert counts.tolist() == [4, 2]


def test_learning_rate_rises_and_decays_to_zero():
    factors = [learning_rate_factor(step, steps=10, warmup_steps=4) for step in range(11)]
    assert factors[:5] == sorted(factors[:5]) and factors[0] > 0 and factors[4] == 1.0
    assert factors[4:] == sorted(factors[4:], reverse=True) and factors[10] == 0.0


def test_a_transcript_begins_as_the_tokenizer_begins_a_text():
    """As in sampling: with the beginning of sequence, which a chat template writes itself."""
    tokenizer = tiny_tokenizer()
    before, chat = (encode(tokenizer, [example("2+2", "4")], template=one)[0] for one in ("base", "chat"))
    begin = begin_texts(tokenizer)
    (after,) = encode(tokenizer, [example("2+2", "4")], template="base")
    assert after.ids == (begin, *before.ids) and after.prompt == before.prompt + 1
    assert encode(tokenizer, [example("2+2", "4")]) == [chat]
