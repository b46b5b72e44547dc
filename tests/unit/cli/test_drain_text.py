"""What `colo drain` prints of a preview that does not know the whole node: never that the node is drained."""

import pytest

from colo_cli.drain import print_preview, print_unmet
from colo_gateway.restrictions.preview import DrainPreview

CUT = "only 1,000 of the 1,500 replicas on the node were read"


def test_a_node_of_which_only_a_part_was_read_is_not_said_to_be_drained(capsys: pytest.CaptureFixture[str]) -> None:
    print_preview(
        DrainPreview(node="n1", batch_only=True, leaving=(), staying=1_000, total=1_500, partial=CUT), "to leave"
    )
    assert capsys.readouterr().out == (
        f"no batch replica is among those that were read; 1000 replicas of online work may stay; {CUT}\n"
    )
    print_unmet(DrainPreview(node="n1", batch_only=False, leaving=(), total=1_500, partial=CUT))
    assert capsys.readouterr().out == (
        f"nothing: the node meets what was read of it, and all of it would find another place now\n{CUT}\n"
    )
    print_preview(DrainPreview(node="n1", batch_only=True, leaving=(), staying=2, total=2), "to leave")
    assert capsys.readouterr().out == ("drained: no batch replica is on the node; 2 replicas of online work may stay\n")
