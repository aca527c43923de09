"""What runs in the process that talks to the loopback Hub."""

import contextlib
import io
import logging
import os

import yaml


def upload_base(folder: str, repo: str = "user/base") -> None:
    from huggingface_hub import HfApi

    api = HfApi()
    api.create_repo(repo, exist_ok=True)
    api.upload_folder(repo_id=repo, folder_path=folder)


def call(main, argv, folder=None):
    """Exit code, standard output and standard error with the log, of a command."""
    out, err = io.StringIO(), io.StringIO()
    handler = logging.StreamHandler(err)
    loggers = [logging.getLogger(), logging.getLogger("transformers")]
    for logger in loggers:
        logger.addHandler(handler)
    before = os.getcwd()
    os.chdir(folder or before)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(argv)
    except SystemExit as stop:
        code = stop.code
    finally:
        os.chdir(before)
        for logger in loggers:
            logger.removeHandler(handler)
    return code, out.getvalue(), err.getvalue()


def train(settings: dict, folder: str):
    from trl_populora import train

    path = os.path.join(folder, "recipe.yaml")
    with open(path, "w") as file:
        yaml.safe_dump(settings, file)
    return call(train.main, ["--config", path], folder)
