import pytest

from trl_populora.executor import Executor


@pytest.fixture(scope="module")
def executor():
    with Executor(1) as executor:
        yield executor
