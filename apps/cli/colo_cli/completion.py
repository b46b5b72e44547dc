"""The command `colo completion SHELL`, and the names that a shell completes."""

import sys
from typing import Literal

import msgspec

from colo_cli.answers import answer_as
from colo_cli.client import Client
from colo_cli.failure import Failure

__all__ = ["complete_names", "completion"]

_BASH_NAMES = """
# Names of jobs and nodes, asked of the gateway when nothing else can stand here.
_colo_with_names() {
  _colo "$@"
  local cur="${COMP_WORDS[COMP_CWORD]}"
  if [[ ${#COMPREPLY[@]} -eq 0 && "$cur" != -* ]]; then
    local what=""
    case "${COMP_WORDS[1]} ${COMP_WORDS[2]}" in
      cancel\\ *|trace\\ *|"get job"|"explain job"|"history job") what=jobs;;
      cordon\\ *|uncordon\\ *|drain\\ *|"get node"|"explain overcommit"|"history node") what=nodes;;
    esac
    [[ -n "$what" ]] && mapfile -t COMPREPLY < <(compgen -W "$(colo complete-names "$what")" -- "$cur")
  fi
}
complete -F _colo_with_names colo
"""
_ZSH_NAMES = """
# Names of jobs and nodes, asked of the gateway; everything else is completed by _cyclopts_colo above.
_colo() {
  local what="" verb="${words[2]}"
  case "$verb" in
    get|explain|history) (( CURRENT == 4 )) && verb="$verb ${words[3]}" || verb="";;
    *) (( CURRENT == 3 )) || verb="";;
  esac
  case "$verb" in
    cancel|trace|"get job"|"explain job"|"history job") what=jobs;;
    cordon|uncordon|drain|"get node"|"explain overcommit"|"history node") what=nodes;;
  esac
  if [[ -n "$what" && "${words[CURRENT]}" != -* ]]; then
    local -a names
    names=(${(f)"$(colo complete-names "$what")"})
    compadd -a names && return
  fi
  _cyclopts_colo "$@"
}
# Read as the file _colo of fpath the text is the function's body; read by `source` it only names the function.
if [[ "${funcstack[1]}" == "_colo" ]]; then _colo "$@"; else compdef _colo colo; fi
"""
_FISH_NAMES = """
# Names of jobs and nodes, asked of the gateway.
complete -c colo -f -n '__fish_seen_subcommand_from cancel trace job' -a '(colo complete-names jobs)'
complete -c colo -f -n '__fish_seen_subcommand_from cordon uncordon drain node overcommit' -a '(colo complete-names nodes)'
"""


def completion(shell: Literal["bash", "zsh", "fish"], /) -> int:
    """Print the completion of a shell; a line in its startup file reads it.

    bash: `source <(colo completion bash)`; zsh: `colo completion zsh > "${fpath[1]}/_colo"`; fish: `colo completion fish | source`.

    Args:
        shell: bash, zsh or fish. Names of jobs and nodes are completed, too.
    """
    from colo_cli.main import app

    names = {"bash": _BASH_NAMES, "zsh": _ZSH_NAMES, "fish": _FISH_NAMES}
    sys.stdout.write(app.generate_completion(shell=shell) + names[shell])
    return 0


def complete_names(what: Literal["jobs", "nodes"], /, *, api: str | None = None) -> int:
    """Print names for a shell to complete, nothing when no gateway answers.

    Args:
        what: jobs or nodes.
        api: Address of the gateway.
    """
    from colo_common.events.requests import JobList, NodeList

    try:
        client = Client(api, retry_for_s=0)
        if what == "jobs":
            names = [each.job for each in answer_as(client.get("/v1/jobs", limit=100), JobList).jobs]
        else:
            names = [each.node for each in answer_as(client.pages("/v1/nodes", "nodes"), NodeList).nodes]
    except (Failure, msgspec.ValidationError):
        # A shell shows whatever is printed here in the middle of a person's line.
        return 1
    sys.stdout.write("".join(f"{name}\n" for name in names))
    return 0
