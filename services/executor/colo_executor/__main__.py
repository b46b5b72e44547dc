"""`python -m colo_executor` runs the service."""

import sys

from colo_executor.main import main

sys.exit(main())
