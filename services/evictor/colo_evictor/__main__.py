"""`python -m colo_evictor` runs the service."""

import sys

from colo_evictor.main import main

sys.exit(main())
