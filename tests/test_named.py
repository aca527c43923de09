"""Objects of a user by name."""

import pytest

from trl_populora.command import populora
from trl_populora.named import named


def test_an_installed_module_and_the_command_are_found_also_when_the_working_folder_is_gone(tmp_path, monkeypatch):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.setenv("PATH", "")
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert named("fractions:Fraction", label="x='fractions:Fraction'").__name__ == "Fraction"
    assert populora()


def test_a_module_that_ends_the_program_is_refused(tmp_path, monkeypatch):
    (tmp_path / "a_script_of_mine.py").write_text("import sys\nsys.exit(0)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"module 'a_script_of_mine' cannot be imported \(SystemExit: 0\)"):
        named("a_script_of_mine:reward", label="x")
