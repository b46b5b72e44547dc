"""The evictor's conversations."""

from pathlib import Path

import pytest

from tests.support.evictor_story import EvictorStory
from tests.support.scripts import Play, script_files


@pytest.mark.parametrize("path", script_files(Path(__file__).parent), ids=lambda path: path.stem)
def test_the_evictor_answers_as_the_conversation_says(path: Path, play: Play) -> None:
    play(path, EvictorStory())
