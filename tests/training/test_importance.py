"""Long rows learn with a sampler of another engine, and what its correction leaves out is counted per member."""

from types import SimpleNamespace

import pytest
import torch

from tests.tiny import perturb
from trl_populora.generation import TransformersSampler
from trl_populora.training.importance import cut_shares


MASK = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]])


@pytest.mark.parametrize(
    ("mode", "low", "ratio", "expected"),
    [
        ("token_truncate", None, [[3.0, 1, 3, 3], [1, 1, 3, 3], [3, 0.1, 1, 1]], {0: 2 / 5, 2: 1 / 4}),
        ("token_truncate", 0.5, [[3.0, 1, 0.5, 3], [1, 1, 3, 3], [1, 1, 1, 1]], {0: 2 / 5, 2: 0.0}),
        ("token_mask", None, [[0.0, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 0]], {0: 1 / 5, 2: 1 / 4}),
        ("sequence_mask", None, [[0.0], [1.2], [0]], {0: 3 / 5, 2: 1.0}),
        ("sequence_truncate", None, [[1.0], [3], [0]], {0: 2 / 5, 2: 0.0}),
    ],
)
def test_the_share_of_each_members_tokens_that_is_cut(mode, low, ratio, expected):
    output = {
        "importance_sampling_ratio": torch.tensor(ratio, dtype=torch.float32),
        "completion_mask": MASK,
        "member_ids": torch.tensor([0, 0, 2]),
    }
    args = SimpleNamespace(
        vllm_importance_sampling_mode=mode,
        vllm_importance_sampling_clip_min=low,
        vllm_importance_sampling_clip_max=3.0,
    )
    assert cut_shares(output, args, lambda counts: counts, 3) == pytest.approx(expected)


class Rounded(TransformersSampler):
    """Reports log-probabilities that are off by as much in every token of student_1, as another engine's rounding."""

    reports_logprobs, off, rested = True, 0.6, 0

    def rest(self):
        self.rested += 1

    def draw(self, prompt_ids, members, row_seeds):
        self.reports_logprobs = False
        drawn = super().draw(prompt_ids, members, row_seeds)
        self.reports_logprobs = True
        return [
            one._replace(logprobs=self._score(one, name, self.off if name == "student_1" else 0.0))
            for one, name in zip(drawn, members, strict=True)
        ]

    def _score(self, one, name, off):
        ids = torch.tensor([[*one.prompt_ids, *one.ids]])
        with self.model_as([name]) as model:
            logprobs = model(ids[:, :-1]).logits.log_softmax(-1)[0, len(one.prompt_ids) - 1 :]
        return [logprobs[i, token].item() - off for i, token in enumerate(one.ids)]


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "cut"), [(None, 0.0), ("sequence_mask", 1.0)])
def test_many_small_differences_do_not_mask_a_row(make_trainer, mode, cut):
    """Each token is off by 0.6 nats: of two already the product of the ratios is above TRL's bound of 3."""
    mode = {} if mode is None else {"vllm_importance_sampling_mode": mode}
    trainer = make_trainer(sampler=Rounded, max_steps=1, **mode)
    if not mode:
        assert trainer.args.vllm_importance_sampling_mode == "token_truncate"
    perturb(trainer.population, 0.1)
    trainer.train()
    logged = {key: value for log in trainer.state.log_history for key, value in log.items()}
    assert logged["completions/min_length"] > 1
    assert logged["sampling/cut/student_1"] == cut
    assert logged["sampling/cut/student_0"] == 0.0
    assert trainer.source.sampler.rested == 1  # of one round, before anything is learned
