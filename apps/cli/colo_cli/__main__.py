"""`python -m colo_cli` is `colo`."""

import sys

from colo_cli.main import main

sys.exit(main())
