"""`python -m colo_gateway` runs the service."""

import sys

from colo_gateway.main import main

sys.exit(main())
