"""What the commands that read show: on terminals of common sizes and in a pipe, of answers that a lab gave."""

from pathlib import Path

import pytest

from tests.support.cli_screens import CliScreens
from tests.support.scripts import Play, script_files


@pytest.mark.parametrize("path", script_files(Path(__file__).parent), ids=lambda path: path.stem)
def test_a_command_shows_what_the_conversation_says(path: Path, play: Play) -> None:
    play(path, CliScreens().answer)
