"""`python -m colo_jobs` runs the service."""

import sys

from colo_jobs.main import main

sys.exit(main())
