"""kill -9 at any moment, then `resume_from_checkpoint="auto"`: the run ends as if nothing had been, bit for bit."""

import json
import signal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.processes import PROCESSES
from tests.training.victim import POINTS, main


pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


def run(folder, kill=None) -> int:
    process = PROCESSES.Process(target=main, args=(str(folder), kill))
    process.start()
    process.join(timeout=240)
    if process.is_alive():
        process.kill()
        pytest.fail(f"the run hangs after {kill}")
    return process.exitcode


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    assert run(folder) == 0
    wanted = json.loads((folder / "outcome.json").read_text())
    assert len(wanted["lineage"]) == 4 and "checkpoint-6" in wanted["folder"]
    assert [one["step"] for one in wanted["probes"]] == [0, 3, 6] and wanted["probes"][0]["founders"]["tasks"]
    assert sum(map(sum, wanted["ratings"]["games"])) and wanted["ratings"]["wins"] != [[0, 0]] * 2
    return wanted


def survives(folder, kills, wanted):
    died = [run(folder, kill) for kill in kills]
    assert set(died) <= {0, -signal.SIGKILL}, died
    if not (folder / "outcome.json").exists():
        assert run(folder) == 0
    got = json.loads((folder / "outcome.json").read_text())
    for key in wanted:
        assert got[key] == wanted[key], f"{key} differs after {kills}"
    return died


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_named_point(point, expected, tmp_path):
    """At the second call, before it takes effect, and when resumed at the first, after it took effect."""
    died = survives(tmp_path, [(point, 1), (point, 0)], expected)
    assert -signal.SIGKILL in died, f"{point} was never reached"


@settings(max_examples=12, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(kills=st.lists(st.tuples(st.just("call"), st.integers(0, 40_000)), min_size=1, max_size=2))
def test_killed_at_any_moment(kills, expected, tmp_path_factory):
    survives(tmp_path_factory.mktemp("killed"), kills, expected)
