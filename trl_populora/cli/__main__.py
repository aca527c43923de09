"""`python -m trl_populora.cli`, for where the script `populora` is not installed."""

import sys

from . import main


if __name__ == "__main__":
    sys.exit(main())
