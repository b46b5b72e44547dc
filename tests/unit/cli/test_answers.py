"""What the gateway says is shown in one way: no command takes a text for a person from an answer as it came."""

from pathlib import Path

import colo_cli


def test_every_command_takes_answers_as_they_may_be_shown() -> None:
    sources = {path.name: path.read_text() for path in Path(colo_cli.__path__[0]).glob("*.py")}
    assert [name for name, source in sources.items() if "msgspec.convert(" in source] == []
    assert sum("answer_as(" in source for source in sources.values()) > 20
