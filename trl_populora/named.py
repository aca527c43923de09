"""A user's own objects by name: task types, rewards, samplers and exams, as `module:Name`."""

import os
import sys
from importlib import import_module
from typing import Any


def see_working_folder() -> None:
    """Lets modules in the working folder be imported, as `python -m` does and a console script does not."""
    try:
        folder = os.getcwd()
    except FileNotFoundError:  # it was removed
        return
    if folder not in sys.path:
        sys.path.append(folder)


def named(path: str, *, label: str, form: str = "'module:Name'") -> Any:
    """
    The object that a setting names.

    Args:
        path (`str`): `module:Name`; the name may have dots. The module is installed or in the working folder.
        label (`str`): What an error message calls it: the setting and its value.
        form (`str`, *optional*): What the setting must look like, for error messages.

    Raises:
        ValueError: If the path has another form, the module cannot be imported, or has no such object.
    """
    module_name, _, name = path.partition(":")
    if not (module_name.strip(".") and all(part.isidentifier() for part in name.split("."))):
        raise ValueError(f"{label} must be {form}.")
    see_working_folder()
    try:
        found = import_module(module_name)
    except (Exception, SystemExit) as error:  # whatever the user's file raises: a script may end itself
        what = str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        raise ValueError(
            f"{label}: the module {module_name!r} cannot be imported ({what}). Give {form}, with the module in the "
            "working folder, installed, or on PYTHONPATH."
        ) from error
    for part in name.split("."):
        if not hasattr(found, part):
            script = " A script is '__main__' only while it runs: move what others need into a module."
            hint = script if module_name == "__main__" else ""
            raise ValueError(f"{label}: the module {module_name!r} has no {name!r}. Give {form}.{hint}")
        found = getattr(found, part)
    return found
