"""`python -m gapo_lit.cli`, for launchers such as torchrun."""

import sys

from gapo_lit.cli import main

if __name__ == "__main__":
    sys.exit(main())
