"""The scheduler's conversations."""

from pathlib import Path

import pytest

from tests.support.reserve_story import ReserveStory
from tests.support.scheduler_story import Story
from tests.support.scripts import Play, script_files


@pytest.mark.parametrize("path", script_files(Path(__file__).parent), ids=lambda path: path.stem)
def test_the_scheduler_answers_as_the_conversation_says(path: Path, play: Play) -> None:
    play(path, ReserveStory() if path.stem.startswith("reserv") else Story())
