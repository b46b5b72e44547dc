"""What a lab shows: its screens at the sizes of common terminals, in a pipe, and its verdict."""

from pathlib import Path

import pytest

from tests.support.lab_story import LabStory
from tests.support.scripts import Play, script_files


@pytest.mark.parametrize("path", script_files(Path(__file__).parent), ids=lambda path: path.stem)
def test_a_lab_shows_what_the_conversation_says(path: Path, play: Play) -> None:
    play(path, LabStory().answer)
