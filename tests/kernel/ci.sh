#!/usr/bin/env bash
# The kernel lab as CI runs it: the lab's own tests, the suite in the default machine, then the whole loop around it. It takes
# four to five minutes; nine are the limit, so that a machine which freezes late can be booted once more. Where the emulator or
# Debian's kernel cannot be had it says so and ends with 0: that is no fault of the change. What stays is the cache of the lab.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if [ "${COLO_KERNEL_LAB_TIMED:-}" != 1 ] && command -v timeout > /dev/null; then
    exec env COLO_KERNEL_LAB_TIMED=1 timeout --kill-after=20 540 bash tests/kernel/ci.sh
fi

python=${PYTHON:-python}
checked=0
"$python" -m tests.kernel.lab --check || checked=$?
if [ "$checked" = 125 ]; then
    echo "kernel-lab: skipped, because this machine has not and cannot get what the lab needs (see the line above)"
    exit 0
elif [ "$checked" != 0 ]; then
    exit "$checked"
fi
"$python" -m pytest -q -rs -m lab tests/system/test_kernel_lab.py
# Twice as long as the suite takes on a busy machine, and what it takes to see that it froze.
# It ends at the first failure, so when the machine froze, whatever ran before had passed. A third machine is not tried: the rest of
# CI's time is for the rest of CI.
suite=0
"$python" -m tests.kernel.lab --timeout 330 pytest -q -x tests/kernel || suite=$?
if [ "$suite" = 123 ]; then
    echo "kernel-lab: NOT JUDGED: the emulator broke the machine twice (its kernel says so, see above); no test had failed"
    exit 0
elif [ "$suite" != 0 ]; then
    exit "$suite"
fi
"$python" -m pytest -q -s -rs -m lab tests/kernel/test_loop.py
