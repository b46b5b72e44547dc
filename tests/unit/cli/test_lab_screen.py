"""What a lab prints without a terminal."""

import io

from colo_cli.lab_screen import print_address


def test_a_lab_without_a_terminal_prints_its_address() -> None:
    printed = io.StringIO()
    print_address("http://127.0.0.1:8088", printed, is_json=False)
    assert printed.getvalue() == "colo lab runs; ask it: COLO_API=http://127.0.0.1:8088 colo get jobs\n"


def test_a_lab_for_programs_prints_nothing_but_its_verdict() -> None:
    printed = io.StringIO()
    print_address("http://127.0.0.1:8088", printed, is_json=True)
    assert printed.getvalue() == ""
