#!/usr/bin/env bash
# The kernel lab as CI runs it: the lab's own tests where it changed, the suite in the default machine, what needs systemd in
# the machine that has it, the whole loop around a machine, then what a kernel does otherwise under cgroup v1 and in a machine
# of one NUMA node: freezing, the fence of devices, core scheduling, whole cores. Ten minutes are usual; forty are the limit. Where the emulator or
# Debian's kernel cannot be had, or the emulator breaks a machine or is too slow for it, it says NOT PROVED HERE and ends with 0: that is no
# fault of the change. What stays is the cache of the lab.
#
# Into the directory COLO_OUTCOMES_DIR it puts what was proved and what was not, for tests.support.outcomes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if [ "${COLO_KERNEL_LAB_TIMED:-}" != 1 ] && command -v timeout > /dev/null; then
    exec env COLO_KERNEL_LAB_TIMED=1 timeout --kill-after=20 2400 bash tests/kernel/ci.sh
fi

python=${PYTHON:-python}
outcomes=${COLO_OUTCOMES_DIR:-}
if [ -z "$outcomes" ]; then
    outcomes=$(mktemp -d)
    trap 'rm -rf "$outcomes"' EXIT
fi

part() {
    printf -- '-- %s (%s s so far)\n' "$1" "$SECONDS"
}

not_proved() { # NAME TESTS REASON
    "$python" -m tests.support.outcomes note "$outcomes/$1.json" "$2" "$3"
}

# Run pytest in a machine and keep its outcomes. It ends at the first failure, so when the machine froze, whatever ran before had
# passed. A command never begins again, and what follows is not tried: the rest of CI's time is for the rest of CI.
in_machine() { # NAME SECONDS MACHINE TESTS WHAT-FOLLOWS...
    local status said="$outcomes/$1.said" paths
    read -ra paths <<< "$4"
    set +e
    "$python" -m tests.kernel.lab --variant "$3" --timeout "$2" \
        env COLO_OUTCOMES=- pytest -q -x -o timeout=$(($2 / 2)) --durations=10 "${paths[@]}" |
        tee "$said" | grep --line-buffered -v '^outcomes: '
    status=${PIPESTATUS[0]}
    set -e
    local why="the emulator broke the machine (its kernel says so, see above)"
    # It ends at the first failure, and a test that hangs is one after half the time, by the machine's clock: a machine that
    # passes the limit is slow, or its clock stands still.
    if [ "$status" = 124 ] && ! grep -Eq '^[.sxX]*[FE]' "$said"; then
        status=123 why="the emulated machine was too slow, or stood still: nothing had failed in $2 s"
    fi
    if [ "$status" = 123 ]; then
        local name=$1
        for tests in "${@:4}"; do
            not_proved "$name" "$tests" "$why"
            name+=-and-what-follows
        done
        exit 0
    elif [ "$status" != 0 ]; then
        exit "$status"
    fi
    "$python" -m tests.support.outcomes keep "$outcomes/$1.json" < "$said"
}

checked=0
"$python" -m tests.kernel.lab --variant numa2 --variant systemd --check || checked=$?
if [ "$checked" = 125 ]; then
    not_proved kernel-lab tests/kernel "this machine has not what the kernel lab needs, and cannot get it (see the line above)"
    exit 0
elif [ "$checked" != 0 ]; then
    exit "$checked"
fi

if "$python" -m tests.kernel.lab.changed; then
    part "the lab's own tests"
    COLO_OUTCOMES="$outcomes/lab.json" "$python" -m pytest -n 0 -q -rs --durations=10 -m lab tests/system/test_kernel_lab.py
    grep -q '"left_out":\[\]' "$outcomes/lab.json" && "$python" -m tests.kernel.lab.changed --passed
else
    not_proved lab tests/system/test_kernel_lab.py "the lab is as it was when they passed"
fi
of_systemd="tests/kernel/test_slices.py tests/kernel/test_units.py tests/kernel/test_attached_units.py"
part "the suite in the default machine"
# Five times as long as they take: a machine that shares its CPUs with others is that much slower.
in_machine suite 700 numa2 tests/kernel "$of_systemd" tests/kernel/test_loop.py
part "what needs systemd"
in_machine systemd 900 systemd "$of_systemd" tests/kernel/test_loop.py
part "the loop around a machine"
COLO_OUTCOMES="$outcomes/loop.json" "$python" -m pytest -n 0 -q -s -rs -m lab tests/kernel/test_loop.py
of_kernels="tests/kernel/test_freeze.py tests/kernel/test_devices.py tests/kernel/test_core_scheduling.py tests/kernel/test_whole_cores.py"
for machine in cgroup-v1 numa1; do
    part "freezing, devices and threads of a core: $machine"
    in_machine "freeze-$machine" 400 "$machine" "$of_kernels"
done
part "the end"
