"""`headgate completion`: the script for a shell to complete commands and options. Imports click only.

Click answers the shell: the script calls `headgate` itself with a variable in its environment.
"""

from __future__ import annotations

import click

from .options import json_option
from .output import one_line_errors, print_document, print_json

PROGRAM = "headgate"
# The name that click derives from the name of the program.
VARIABLE = "_HEADGATE_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option
@click.pass_context
@one_line_errors
def completion(ctx: click.Context, shell: str, as_json: bool) -> None:
    """Print the script with which SHELL completes commands and options.

    \b
    bash: eval "$(headgate completion bash)"          in ~/.bashrc (bash 4.4 or newer)
    zsh:  eval "$(headgate completion zsh)"           in ~/.zshrc, after compinit
    fish: headgate completion fish > ~/.config/fish/completions/headgate.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(ctx.find_root().command, {}, PROGRAM, VARIABLE)
    # Not `source()`, which for bash searches for the bash of this machine.
    text = kind.source_template % script.source_vars()
    if as_json:
        print_json({"shell": shell, "script": text})
    else:
        print_document(f"{text}\n")
