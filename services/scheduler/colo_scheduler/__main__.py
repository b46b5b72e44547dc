"""`python -m colo_scheduler` runs the service."""

import sys

from colo_scheduler.main import main

sys.exit(main())
