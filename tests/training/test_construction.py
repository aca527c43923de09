"""Where the base is put."""

from types import SimpleNamespace

import pytest
import torch

from trl_populora import PopulationSelfPlayConfig, PopulationSelfPlayTrainer
from trl_populora.integrations import resolve_base
from trl_populora.training import construction


@pytest.mark.parametrize(
    ("device", "launched", "given", "expected"),
    [
        ("cuda:0", "NO", {}, {"": torch.device("cuda:0")}),  # also where the process sees eight of them
        ("cuda:3", "MULTI_GPU", {}, None),  # Trainer moves it
        ("cuda:0", "NO", {"device_map": {"": 1}}, {"": 1}),
        ("cpu", "NO", {}, "unset"),
    ],
)
def test_the_base_lies_on_one_device(monkeypatch, device, launched, given, expected):
    """TRL loads with device_map="auto", which splits the layers among all visible devices; routing has one."""
    seen = {}

    class Loading(Exception):
        """All that matters here has happened."""

    def load(name, **kwargs):
        seen.update(kwargs)
        raise Loading

    monkeypatch.setattr(construction, "create_model_from_path", load)
    args = SimpleNamespace(
        beta=0.0,
        n_gpu=1,
        initial_adapters=None,
        shard_base=False,
        seed=0,
        device=torch.device(device),
        distributed_state=SimpleNamespace(distributed_type=launched),
        trust_remote_code=False,
        model_init_kwargs=given,
    )
    with pytest.raises(Loading):
        construction.make_population("a base", args, None, None)
    assert seen.get("device_map", "unset") == expected


def test_a_name_that_only_recipes_know_is_not_looked_for_on_the_hub(monkeypatch):
    monkeypatch.setattr(construction, "create_model_from_path", lambda *_, **__: pytest.fail("it was loaded"))
    args = SimpleNamespace(
        n_gpu=1,
        trust_remote_code=False,
        model_init_kwargs=None,
        distributed_state=SimpleNamespace(distributed_type="NO"),
        device=torch.device("cpu"),
    )
    with pytest.raises(ValueError, match=r"model='tiny' is a name of recipes: pass .*resolve_base\('tiny'\)"):
        construction._load_base("tiny", args, None)


def test_what_the_base_does_not_take_is_told():
    args = SimpleNamespace(
        n_gpu=1,
        trust_remote_code=False,
        model_init_kwargs={"load_in_4bit": True},
        distributed_state=SimpleNamespace(distributed_type="NO"),
        device=torch.device("cpu"),
    )
    with pytest.raises(ValueError, match="model_init_kwargs: .* argument 'load_in_4bit'. Give"):
        construction._load_base(resolve_base("tiny"), args, None)


def test_several_gpus_in_one_process_are_refused_before_the_base_is_loaded(monkeypatch, tmp_path):
    """TRL does so after it. Trainer would copy the base to all of them."""
    args = PopulationSelfPlayConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, num_teachers=1, num_students=1)
    args._n_gpu = 2
    monkeypatch.setattr(construction, "create_model_from_path", None)
    with pytest.raises(ValueError, match="sees 2 GPUs .* `accelerate launch` .* CUDA_VISIBLE_DEVICES=0"):
        PopulationSelfPlayTrainer(model="a folder", args=args)
