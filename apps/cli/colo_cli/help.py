"""The command `colo help`: words, exit codes, or the help of a command."""

import sys

from colo_cli.failure import Failure

__all__ = ["show_help"]

_TOPICS = ("words", "exit-codes")


def show_help(*topic: str) -> int:
    """Explain words and exit codes, or a command.

    Args:
        topic: words, words WORD for one of them, exit-codes, or a command such as get nodes; none: all commands.
    """
    match topic:
        case ("words", *asked):
            _words(asked)
        case ("exit-codes",):
            from colo_cli.exit_codes import exit_codes_text

            sys.stdout.write(exit_codes_text())
        case _:
            _of_command(topic)
    return 0


def _words(asked: list[str]) -> None:
    from colo_cli.words import words_by_topic

    topics = words_by_topic()
    if not asked:
        width = max(len(word.word) for words in topics.values() for word in words)
        blocks = (
            "\n".join([topic, *(f"  {w.word:<{width}}  {w.means}" for w in words)]) for topic, words in topics.items()
        )
        sys.stdout.write("\n\n".join(blocks) + "\n")
        return
    for name in asked:
        found = [(topic, w) for topic, words in topics.items() for w in words if w.word.lower() == name.lower()]
        if not found:
            from colo_common.model.nearest import hint

            known = [w.word for words in topics.values() for w in words]
            raise Failure(f"{name}: is not a word of colo; {hint(name, known, 'words')}", 2)
        for topic, word in found:
            sys.stdout.write(f"{word.word} ({topic[0].lower()}{topic[1:]}): {word.means}\n")


def _of_command(words: tuple[str, ...]) -> None:
    from colo_cli.main import main

    if words and words[0] not in _TOPICS and words[0].startswith("-"):
        raise Failure(f"{words[0]}: is not a topic; topics: {' '.join(_TOPICS)} and the name of a command", 2)
    if main([*words, "--help"]) != 0:
        raise Failure(f"topics: {' '.join(_TOPICS)} and the name of a command", 2)
    if not words:
        sys.stdout.write(f"Topics of `colo help`: {', '.join(_TOPICS)}\n")
