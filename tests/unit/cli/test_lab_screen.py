"""What a lab says where nobody sees its picture."""

import io

from colo_cli.lab_screen import say_where


def test_a_lab_without_a_terminal_says_where_to_ask_it() -> None:
    told = io.StringIO()
    say_where("http://127.0.0.1:8088", told, is_json=False)
    assert told.getvalue() == "colo lab runs; ask it: COLO_API=http://127.0.0.1:8088 colo get jobs\n"


def test_a_lab_for_programs_says_nothing_but_its_verdict() -> None:
    told = io.StringIO()
    say_where("http://127.0.0.1:8088", told, is_json=True)
    assert told.getvalue() == ""
