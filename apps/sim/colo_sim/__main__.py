"""`python -m colo_sim` runs simulated nodes against a real bus."""

import sys

from colo_sim.host import main

sys.exit(main())
