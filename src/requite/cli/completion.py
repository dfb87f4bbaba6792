"""`requite --install-completion`: tab completion for bash, zsh and fish."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias, get_args

from cyclopts import Parameter
from cyclopts.completion.detect import ShellDetectionError, detect_shell

from requite.cli.output import say
from requite.errors import ConfigurationError

Shell: TypeAlias = Literal["bash", "zsh", "fish"]

_SHELLS: Final[tuple[Shell, ...]] = get_args(Shell)
# Runs `compinit` only if nothing ran it before (oh-my-zsh does). -i skips folders that other users
# can write to, without a prompt at each start.
_ZSHRC: Final = """\
# Load requite completion
fpath=({folder} $fpath)
(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit -i }}
autoload -Uz {function} && compdef {function} requite
"""
# readline splits words at colons, as in URLs, and replaces only what follows the last one.
_BASH: Final = """\
_requite_with_urls() {
  local -a words=()
  local n=0 joins= word i
  for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
    if [[ $n -gt 1 && ( -n $joins || $word == :* ) ]]; then
      words[n-1]+=$word
    else
      words[n++]=$word
    fi
    [[ $word == *: ]] && joins=1 || joins=
  done
  COMP_WORDS=("${words[@]}")
  COMP_CWORD=$((n - 1))
  word=${words[n-1]}
  _requite "$@"
  if [[ $COMP_WORDBREAKS == *:* && $word == *:* ]]; then
    for i in "${!COMPREPLY[@]}"; do
      COMPREPLY[i]=${COMPREPLY[i]#"${word%:*}:"}
    done
  fi
}
complete -F _requite_with_urls requite
"""
_BASH_END: Final = "complete -F _requite requite\n"
# `'1:What it is'` among the specs of `_arguments`: a positional argument without an action.
_ZSH_POSITIONAL: Final = re.compile(
    r"""^( +)(['"])((?:\d+|\*):(?:[^:\n]|\\:)*)\2( \\)?$""", re.MULTILINE
)


def install_completion(
    *,
    shell: Annotated[
        Shell | None,
        Parameter(help="Shell to install completion for. [default: the current shell]"),
    ] = None,
) -> None:
    """Install tab completion for bash, zsh or fish.

    Writes a script to your home folder, and for bash and zsh a few lines to
    `~/.bashrc` or `~/.zshrc` that load it. New shells complete the verbs, their
    options, the values of options, and the services of the broker in a URL
    (within two seconds). Run it again after an upgrade.

      $ requite --install-completion
      $ requite --install-completion --shell zsh
    """
    from requite.cli.app import build

    chosen = _detect() if shell is None else shell
    app = build(listed=True)
    try:
        # cyclopts does not run `compinit`, without which a new user's zsh completes nothing.
        path = app.install_completion(shell=chosen, add_to_startup=chosen == "bash")
        if chosen == "zsh":
            _complete_options(path)
            _load_in_zsh(path)
        if chosen == "bash":
            _complete_urls(path)
    except OSError as error:
        raise ConfigurationError(f"cannot write {error.filename}: {error.strerror}") from error
    say(f"installed completion for {chosen} in {path}; start a new shell to use it")


def _detect() -> Shell:
    try:
        found = detect_shell()
    except ShellDetectionError:
        found = None
    for shell in _SHELLS:
        if shell == found:
            return shell
    problem = "cannot detect the shell" if found is None else f"no completion for {found}"
    raise ConfigurationError(f"{problem}; give --shell with one of {', '.join(_SHELLS)}")


def _complete_options(script: Path) -> None:
    """Give each positional argument an empty action. Without an action, zsh lists a matching option
    but does not insert it."""
    text = script.read_text(encoding="utf-8")
    script.write_text(_ZSH_POSITIONAL.sub(r"\1\2\3:()\2\4", text), encoding="utf-8")


def _complete_urls(script: Path) -> None:
    """Have bash complete URLs, which it takes for several words."""
    text = script.read_text(encoding="utf-8")
    script.write_text(text.replace(_BASH_END, _BASH), encoding="utf-8")


def _load_in_zsh(script: Path) -> None:
    file = Path(os.environ.get("ZDOTDIR") or Path.home()) / ".zshrc"
    before = file.read_text(encoding="utf-8", errors="surrogateescape") if file.exists() else ""
    lines = _ZSHRC.format(folder=_quote(script.parent), function=script.name)
    if lines not in before:
        with file.open("a", encoding="utf-8", errors="surrogateescape") as out:
            out.write(lines if before.endswith("\n") or not before else f"\n{lines}")


def _quote(path: Path) -> str:
    return "'" + str(path).replace("'", "'\\''") + "'"
