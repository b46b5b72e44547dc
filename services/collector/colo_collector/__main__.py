"""`python -m colo_collector`: the collector of this machine."""

import sys

from colo_collector.main import main

if __name__ == "__main__":
    sys.exit(main())
