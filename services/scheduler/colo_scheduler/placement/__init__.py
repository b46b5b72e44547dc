"""Finding a place: filters, scores, candidates, the exact fit of one node, and the explanation of each decision."""
