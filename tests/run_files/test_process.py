import json
import os
import subprocess
import sys

from trl_populora.run_files.process import has_ended, this_process


def test_a_process_is_there_until_it_ends():
    code = "import json; from trl_populora.run_files.process import this_process; "
    code += "print(json.dumps(this_process()), flush=True); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], text=True, **pipes) as child:
        told = json.loads(child.stdout.readline())
        assert told["id"] == child.pid and not has_ended(told)
        child.stdin.close()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody has taken its status
        assert has_ended(told)
    assert has_ended(told)


def test_another_process_of_the_same_id_is_not_taken_for_it():
    told = this_process()
    assert not has_ended(told) and has_ended(told | {"start": told["start"] - 1})


def test_nothing_is_said_of_a_process_of_another_user(monkeypatch):
    def refuse(process, signal):
        raise PermissionError

    gone = this_process() | {"start": 1}
    monkeypatch.setattr(os, "kill", refuse)
    assert not has_ended(gone)


def test_nothing_is_said_of_other_machines_and_older_runs():
    gone = this_process() | {"start": 1}
    assert has_ended(gone)
    assert not has_ended(gone | {"machine": "another"}) and not has_ended(gone | {"machine": ""}) and not has_ended({})
