"""Where the base is put."""

from types import SimpleNamespace

import pytest
import torch

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
        trust_remote_code=False,
        model_init_kwargs=None,
        distributed_state=SimpleNamespace(distributed_type="NO"),
        device=torch.device("cpu"),
    )
    with pytest.raises(ValueError, match=r"model='tiny' is a name of recipes: pass .*resolve_base\('tiny'\)"):
        construction._load_base("tiny", args, None)
