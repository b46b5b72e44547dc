"""For how long a control group waited for a CPU, by what its threads ran and waited: for groups without a pressure file."""

from collections.abc import Sequence

__all__ = ["some_wait_ns"]


def some_wait_ns(times: Sequence[tuple[int, int]], span_ns: int, cpus: int) -> int:
    """The time of a span in which the group waited, from what each of its threads ran and waited in it (ns); at most the span.

    An estimate of PSI "some". That is the time in which a thread of the group was queued on a CPU, as the mean of the CPUs, each
    counted by how long the group was busy there. How threads lay on the `cpus` that they may use is not known, so the larger of
    two means counts, rounded down:

    - of the threads, each counted by run + wait: exact where each thread has a CPU of its own, too low where several share one;
    - sum of waits x span // max(span x c, sum of run + wait), c = min(cpus, threads that wanted a CPU): exact where the threads
      lie evenly on c CPUs and those of a CPU do not wait at the same time, too high where they do.

    Threads that did nothing do not matter. A wait counts when it ends, and one that is longer than the span counts as the span.
    """
    active = [(run + wait, wait) for run, wait in times if run + wait > 0]
    wanted_ns = sum(both for both, _ in active)
    if not wanted_ns or span_ns <= 0:
        return 0
    of_threads = sum(both * wait for both, wait in active) // wanted_ns
    waited_ns = sum(wait for _, wait in active)
    of_cpus = waited_ns * span_ns // max(span_ns * max(1, min(cpus, len(active))), wanted_ns)
    return min(span_ns, max(of_threads, of_cpus))
