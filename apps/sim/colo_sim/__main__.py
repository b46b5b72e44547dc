"""`python -m colo_sim` hosts simulated nodes."""

import sys

from colo_sim.host import main

sys.exit(main())
