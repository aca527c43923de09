from trl_populora.reporting.dataset_card import dataset_card
from trl_populora.run_files.files import write_table


def test_a_column_of_another_version_has_no_meaning_but_a_row(tmp_path):
    path = tmp_path / "rounds" / "round_000000.parquet"
    write_table(path, [{"round": 0, "later": "x"}], {"round": int, "later": str})
    card = dataset_card({"rounds": [str(path)]}, repo_id="me/rounds")
    meaning = "number of the round, from 0; of a `late` row that in which its member learns from it"
    assert "1 table, 1 row." in card and "- self-play" in card
    assert "- self-play" not in dataset_card({"rounds": [str(path)]}, repo_id="me/rounds", self_play=False)
    assert f"| `round` | int64 | {meaning} |" in card and "| `later` | string |  |" in card
