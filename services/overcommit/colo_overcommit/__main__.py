"""`python -m colo_overcommit` runs the service."""

import sys

from colo_overcommit.main import main

sys.exit(main())
