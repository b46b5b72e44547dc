"""The overcommit service's conversations."""

from pathlib import Path

import pytest

from tests.support.overcommit_story import OvercommitStory
from tests.support.scripts import Play, script_files


@pytest.mark.parametrize("path", script_files(Path(__file__).parent), ids=lambda path: path.stem)
def test_the_overcommit_service_answers_as_the_conversation_says(path: Path, play: Play) -> None:
    play(path, OvercommitStory())
