import pytest

from trl_populora.run_files.secrets import HIDDEN, find_secrets, without_secrets


@pytest.mark.parametrize(
    "name",
    ["token", "hub_token", "hf_tokens", "accessToken", "API-Key", "apikey", "secretName", "db_password"]
    + ["passwd", "passphrase", "private_key", "AWS_ACCESS_KEY_ID", "Authorization", "bearer", "Cookie", "credentials"],
)
def test_texts_of_secret_names_are_hidden(name):
    for value in ("x", ["x"], {"user": "x"}):
        assert without_secrets({"a": [{name: value}]}) == {"a": [{name: HIDDEN}]}
        assert list(find_secrets({"a": [{name: value}]})) == [f"a[0].{name}"]


@pytest.mark.parametrize(
    "settings",
    [
        {"max_tokens": 3, "hub_token": None, "use_auth_token": True, "api_key": "", "tokens": [1, 2]},
        {"pad_token": "<pad>", "eos_token": "<e>", "tokenizer": "user/base", "stop_token_ids": "1"},
        {
            "chat_template_kwargs": {"think_token": "<think>"},
            "importance_sampling_level": "token",
            "include_num_input_tokens_seen": "all",
        },
        {"url": "https://host:80/a@b", "address": "me@host", 3: ("a", None)},
    ],
)
def test_everything_else_stays(settings):
    assert without_secrets(settings) == settings and not list(find_secrets(settings))
    assert not list(find_secrets({"learning_rate": float("nan")}))  # not equal to itself


def test_logins_in_urls_are_hidden():
    settings = {"urls": ("http://user:p%40ss@node:80/v1?a=b@c", "http://node")}
    assert without_secrets(settings) == {"urls": (f"http://{HIDDEN}@node:80/v1?a=b@c", "http://node")}
    assert list(find_secrets(settings)) == ["urls[0]"]
