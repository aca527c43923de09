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
    monkeypatch.setattr(construction, "create_model_from_path", lambda name, **kwargs: seen.update(kwargs))
    args = SimpleNamespace(
        device=torch.device(device),
        distributed_state=SimpleNamespace(distributed_type=launched),
        trust_remote_code=False,
        model_init_kwargs=given,
    )
    construction._load_base("a base", args, None)
    assert seen.get("device_map", "unset") == expected
