"""`benchmarks/quantized_gradients.py` on the tiny base: packing changes gradients, but does not turn them round."""

import pytest

from benchmarks.quantized_gradients import compare
from trl_populora.integrations.base_models import TINY, resolve_base


@pytest.mark.slow
def test_gradients_on_a_packed_base_point_where_those_on_the_unpacked_base_point():
    pytest.importorskip("bitsandbytes", reason="pip install 'trl-populora[quantized]'")
    numbers = compare(resolve_base(TINY), rows=4, tokens=16)
    assert set(numbers) == {"teacher_0", "teacher_1", "student_0", "student_1"}
    for one in numbers.values():
        assert 0.5 < one["cosine"] < 1.0 and 0.0 < one["distance"] < 1.0
