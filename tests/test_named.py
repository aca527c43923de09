"""Objects of a user by name."""

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
