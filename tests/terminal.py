"""A terminal in memory, on which views redraw their screens twice a second."""

import io
import re
import time


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def shows(self, pattern: str, *, seconds: float = 60.0) -> bool:
        """Whether text of this pattern is written at some time."""
        end = time.monotonic() + seconds
        while not (found := re.search(pattern, self.getvalue())) and time.monotonic() < end:
            time.sleep(0.01)
        return found is not None
