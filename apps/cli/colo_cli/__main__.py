"""Runs the `colo` command for `python -m colo_cli`."""

import sys

from colo_cli.main import main

sys.exit(main())
