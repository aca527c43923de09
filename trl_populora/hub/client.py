"""Access to the Hub: creates repositories, uploads one commit, downloads one snapshot. Every error names a fix."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, RepoCard, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError, RepositoryNotFoundError

from ..run_files.layout import CARD_FILE


logger = logging.getLogger(__name__)

Kind = Literal["model", "dataset"]
Contents = Mapping[str, str | bytes]
"""Path in the repository -> content, or the path of a file that holds it."""
PASSING = (408, 429, 500, 502, 503, 504)
"""Answers of a Hub that is busy or broken just now."""
_LOGIN = "Log in with `hf auth login`, or set HF_TOKEN to a token with write permission."
LICENSE_TIMEOUT = 5.0  # seconds; nothing but the license of the base depends on the answer


class HubError(ValueError):
    """The Hub refused a request or cannot be reached. The message says what to do.

    Attributes:
        final (`bool`): Whether the same request would fail again. If not, it may succeed later.
    """

    def __init__(self, text: str, *, final: bool = True) -> None:
        super().__init__(text)
        self.final = final


@contextmanager
def hub_errors(what: str) -> Iterator[None]:
    """Context that turns errors of the client into a [`HubError`] with a message that starts with `what`."""
    try:
        yield
    except HubError:
        raise
    except LocalTokenNotFoundError:
        raise HubError(f"{what}: there is no token. {_LOGIN}") from None
    except HfHubHTTPError as error:
        raise HubError(f"{what}: {_refusal(error)}", final=error.response.status_code not in PASSING) from error
    except Exception as error:  # whatever the HTTP client raises without a network; it differs between versions
        ours = isinstance(error, ValueError) or (isinstance(error, OSError) and error.filename is not None)
        story = " ".join(str(error).split()) or type(error).__name__
        story = story if ours else f"the Hub cannot be reached ({story})"
        raise HubError(f"{what}: {story.removesuffix('.')}.", final=ours) from error


def _refusal(error: HfHubHTTPError) -> str:
    status, said = error.response.status_code, (error.server_message or "").strip().rstrip(".")
    said = f" ({said})" if said else ""
    if isinstance(error, RepositoryNotFoundError) and status == 401:
        return f"there is no such repository, or it is private and you are not logged in{said}. {_LOGIN}"
    if status == 401:
        return f"the Hub does not accept the token, or there is none{said}. {_LOGIN}"
    if status == 403:
        return f"you may not write there{said}. Name your own repository, or use a token that may write to it."
    if status == 404:
        return f"there is no such repository, revision or file, or it is private and your token may not see it{said}."
    return f"the Hub answered {status}{said}."


def open_repository(
    repo_id: str,
    *,
    kind: Kind = "model",
    private: bool | None = None,
    token: str | None = None,
    revision: str | None = None,
) -> str:
    """Creates a repository and a branch if they do not exist, and checks that the repository is writable.

    Args:
        repo_id (`str`): `"user/name"`, or a name in your own namespace.
        kind (`str`, *optional*, defaults to `"model"`): `"model"` or `"dataset"`.
        private (`bool`, *optional*): Whether it must be private. If unset, the default of its owner.
        token (`str`, *optional*): Token that may write; the one you are logged in with if unset.
        revision (`str`, *optional*): Branch.

    Returns:
        `str`: Its full id.

    Raises:
        HubError: If it cannot be created or written, or is public although `private` is set.
    """
    api = HfApi(token=token)
    with hub_errors(f"{repo_id} cannot be pushed to"):
        repo_id = api.create_repo(repo_id, repo_type=kind, private=private, exist_ok=True).repo_id
        api.auth_check(repo_id, repo_type=kind, write=True)
        if private and not api.repo_info(repo_id, repo_type=kind).private:
            raise HubError(
                f"{repo_id} is public already, and stays so: make it private in its settings on the Hub, name another "
                "repository, or push without asking for a private one."
            )
        if revision and not revision.startswith("refs/"):  # those are of pull requests
            api.create_branch(repo_id, branch=revision, repo_type=kind, exist_ok=True)
    return repo_id


def commit(
    repo_id: str,
    contents: Contents,
    *,
    kind: Kind = "model",
    message: str,
    owned: Callable[[str], bool] = lambda path: False,
    revision: str | None = None,
    token: str | None = None,
) -> str:
    """Uploads files to a repository in one commit, so that others see all of them or none.

    Args:
        repo_id (`str`): Where to.
        contents (`Contents`): The files.
        kind (`str`, *optional*, defaults to `"model"`): `"model"` or `"dataset"`.
        message (`str`): Title of the commit.
        owned (`Callable`, *optional*): Returns for the path of a file whether it is deleted if it is not in
            `contents`.
        revision (`str`, *optional*): Branch; `"main"` if unset.
        token (`str`, *optional*): Token that may write.

    Returns:
        `str`: Address of the commit.

    Raises:
        HubError: If it fails. Then nothing has changed.
    """
    api = HfApi(token=token)
    with hub_errors(f"{repo_id} was not pushed to"):
        files = api.list_repo_files(repo_id, repo_type=kind, revision=revision)
        stale = [path for path in files if path not in contents and owned(path)]
        operations = [
            *(CommitOperationDelete(path) for path in stale),
            *(CommitOperationAdd(path, content) for path, content in sorted(contents.items())),
        ]
        done = api.create_commit(repo_id, operations, repo_type=kind, commit_message=message, revision=revision)
    return str(done.commit_url)


def card_metadata(
    repo_id: str, *, kind: Kind = "model", revision: str | None = None, token: str | None = None
) -> dict:
    """Metadata of the repository's card; empty without a card."""
    with hub_errors(f"The card of {repo_id} cannot be read"):
        api = HfApi(token=token)
        if not api.file_exists(repo_id, CARD_FILE, repo_type=kind, revision=revision):
            return {}
        path = api.hf_hub_download(repo_id, CARD_FILE, repo_type=kind, revision=revision)
    try:
        data = RepoCard.load(path, ignore_metadata_errors=True).data.to_dict()
    except Exception as error:  # of the YAML parser, for example; the card is written anew anyway
        story = " ".join(str(error).split())[:200]
        logger.warning(f"Metadata in the card of {repo_id} cannot be read, so nothing of it is kept: {story}")
        return {}
    language = data.get("language")  # YAML reads the code of Norwegian, `no`, as false
    if language is False:
        data["language"] = "no"
    elif isinstance(language, list):
        data["language"] = ["no" if one is False else one for one in language]
    return data


def license_of(model: str, *, token: str | None = None) -> dict[str, Any]:
    """Metadata of the card with the model's license; empty if the Hub has none."""
    try:
        card = HfApi(token=token).model_info(model, timeout=LICENSE_TIMEOUT).card_data
    except Exception as error:  # as above; a card without a license is a card
        logger.info("The license of %s is not known: %s", model, error)
        return {}
    known = card.to_dict() if card else {}
    return {key: known[key] for key in ("license", "license_name", "license_link") if key in known}


def download(repo_id: str, *, patterns: Collection[str], revision: str | None = None, token: str | None = None) -> str:
    """Files of a model repository that match `patterns`, as a folder in the Hub's cache.

    Raises:
        HubError: If there is no such repository or revision, or the Hub cannot be reached.
    """
    with hub_errors(f"{repo_id} cannot be read"):
        return snapshot_download(repo_id, revision=revision, token=token, allow_patterns=list(patterns))


def head(repo_id: str, *, revision: str | None = None, token: str | None = None) -> tuple[str, list[str]]:
    """The commit of a model repository's revision, and the paths in it."""
    with hub_errors(f"{repo_id} cannot be read"):
        info = HfApi(token=token).model_info(repo_id, revision=revision)
    return str(info.sha), [file.rfilename for file in info.siblings or ()]
