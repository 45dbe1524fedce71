"""`python -m t5x_like` is the `t5x_like` command."""

import sys

from t5x_like.cli.main import main

sys.exit(main())
