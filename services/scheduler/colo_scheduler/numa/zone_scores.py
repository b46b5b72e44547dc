"""How evenly a request would use the resources of a zone, 0-100: the balanced strategy of scheduler-plugins' NodeResourceTopology
score (noderesourcetopology/score.go)."""

from colo_common.model.resource_list import ResourceList

__all__ = ["MAX_SCORE", "balanced_score"]

MAX_SCORE = 100


def balanced_score(request: ResourceList, free: ResourceList) -> int:
    """(1 - sample variance of the requested fractions) * 100, cut to an integer; 0 when a fraction is above 1 or nothing is asked.

    A resource that the zone lacks counts as fraction 1. Floats on purpose: the published scores are cut after this arithmetic
    (two passes, the mean's rounding error compensated), so an exact quotient could differ by one.
    """
    fractions = []
    for name in sorted(request):
        have = free.get(name, 0)
        fraction = request[name] / have if have else 1.0
        if fraction > 1:
            return 0
        fractions.append(fraction)
    if len(fractions) < 2:
        return MAX_SCORE if fractions else 0
    mean = sum(fractions) / len(fractions)
    squares = sum((each - mean) ** 2 for each in fractions)
    rounding = sum(each - mean for each in fractions)
    variance = (squares - rounding * rounding / len(fractions)) / (len(fractions) - 1)
    return int((1 - variance) * MAX_SCORE)
