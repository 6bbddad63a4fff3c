"""Completion scripts, static but for values: those come from one quick call that reads a folder and starts nothing."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator

from ftagent.commandline.model import CommandModel, commands, flatten

SHELLS = ("bash", "zsh", "fish")


def script(shell: str) -> str:
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](commands())


def _words(model: CommandModel) -> list[tuple[str, str]]:
    """Actions below a command, with what they do: subcommands, or the words of its first argument."""
    if model.children:
        return [(child.path.rpartition(" ")[2], child.help) for child in model.children]
    if model.values and model.values[0][1].startswith("="):
        return [(word, "") for word in model.values[0][1][1:].split()]
    return []


def _value_kind(model: CommandModel) -> str:
    """Of what is typed as an argument; a model where the first one was an action of `ft models`."""
    kinds = [kind for _, kind, _ in model.values if not kind.startswith("=")]
    return kinds[0] if kinds else ("models" if model.path == "models" else "")


def _cases(found: list[CommandModel], body: Callable[[CommandModel], str]) -> Iterator[str]:
    for model in flatten(found):
        if text := body(model):
            yield f"    {shlex.quote(model.path)}) {text} ;;"


def _options(model: CommandModel) -> str:
    return " ".join(word for option in model.options for word in option.words)


def _kinds(model: CommandModel) -> str:
    """Shell cases from an option to the kind of its value."""
    cases = [f"{'|'.join(o.words)}) echo {shlex.quote(o.kind)} ;;" for o in model.options if o.kind]
    return f"case $2 in {' '.join(cases)} esac" if cases else ""


_COMMON = "--debug --color --no-color --no-input --help --version -h -V"
_TABLES = """\
_ft_words() {{
  case $1 in
    '') echo {names} ;;
{words}
  esac
}}
_ft_options() {{
  case $1 in
    '') echo {common} ;;
{options}
  esac
}}
_ft_kind() {{
  case $1 in
{kinds}
  esac
}}
_ft_argument() {{
  case $1 in
{arguments}
  esac
}}
"""


def _tables(found: list[CommandModel]) -> str:
    return _TABLES.format(
        names=" ".join(["help", *(model.path for model in found)]),
        common=_COMMON,
        words="\n".join(_cases(found, lambda m: "echo " + " ".join(w for w, _ in _words(m)) if _words(m) else "")),
        options="\n".join(_cases(found, lambda m: f"echo {shlex.quote(_options(m))}")),
        kinds="\n".join(_cases(found, _kinds)),
        arguments="\n".join(_cases(found, lambda m: f"echo {k}" if (k := _value_kind(m)) else "")),
    )


_BASH = r"""# ft completion for bash:  source <(ft completion bash)
@TABLES@
_ft_values() {
  if [[ ${_ft_cached-} != "$1" || $((SECONDS - ${_ft_cached_at:-0})) -ge 5 ]]; then
    _ft_cache=$(command ft completion --values "$1" 2>/dev/null)
    _ft_cached=$1 _ft_cached_at=$SECONDS
  fi
  local line
  while IFS= read -r line; do [[ -n $line ]] && printf '%q\n' "${line%%$'\t'*}"; done <<<"$_ft_cache"
}
_ft_of_kind() {
  case $1 in
    '='*) printf '%s\n' ${1#=} ;;
    files) compgen -f -- "$2" ;;
    dirs) compgen -d -- "$2" ;;
    value|'') ;;
    *) _ft_values "$1" ;;
  esac
}
_ft() {
  local -a typed=()
  local i word glue=0 command='' cur kind='' candidates line IFS=$' \t\n'
  for ((i = 1; i <= COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [[ ${#typed[@]} -gt 0 && ($word == : || $word == = || $glue == 1) ]]; then
      typed[${#typed[@]}-1]+=$word
    else
      typed+=("$word")
    fi
    [[ $word == : || $word == = ]] && glue=1 || glue=0
  done
  cur=${typed[${#typed[@]}-1]}
  for ((i = 0; i < ${#typed[@]} - 1; i++)); do
    word=${typed[i]}
    if [[ $word == -- ]]; then COMPREPLY=($(compgen -f -- "$cur")); return; fi
    if [[ $word == -* ]]; then
      kind=$(_ft_kind "$command" "$word")
      if [[ -n $kind && $word != *=* ]]; then
        if ((i == ${#typed[@]} - 2)); then break; fi
        i=$((i + 1))
      fi
      kind=''
      continue
    fi
    if [[ -z $command && $word == help ]]; then continue; fi
    case " $(_ft_words "$command") " in
      *" $word "*) [[ $command == models || $command == bench ]] || command=${command:+$command }$word ;;
    esac
  done
  if [[ -n $kind ]]; then
    candidates=$(_ft_of_kind "$kind" "$cur")
  elif [[ $cur == --*=* ]]; then
    kind=$(_ft_kind "$command" "${cur%%=*}")
    candidates=$(_ft_of_kind "$kind" "${cur#*=}")
    cur=${cur#*=}
  elif [[ $cur == -* ]]; then
    candidates=$(printf '%s\n' $(_ft_options "$command"))
  else
    candidates=$(printf '%s\n' $(_ft_words "$command"); _ft_of_kind "$(_ft_argument "$command")" "$cur")
  fi
  COMPREPLY=()
  while IFS= read -r line; do
    [[ -n $line && $line == "$cur"* ]] && COMPREPLY+=("$line")
  done <<<"$candidates"
  if [[ $cur == *:* && $COMP_WORDBREAKS == *:* ]]; then
    local before=${cur%"${cur##*:}"}
    COMPREPLY=("${COMPREPLY[@]#"$before"}")
  fi
}
complete -o nosort -F _ft ft 2>/dev/null || complete -F _ft ft
"""


def _bash(found: list[CommandModel]) -> str:
    return _BASH.replace("@TABLES@", _tables(found))


_ZSH = r"""#compdef ft
# ft completion for zsh:  ft completion zsh > "${fpath[1]}/_ft"
@TABLES@
@DESCRIPTIONS@
_ft_of_kind() {
  local -a lines described
  local line
  case $1 in
    '='*) compadd -- ${=1#=} ;;
    files) _files ;;
    dirs) _files -/ ;;
    value|'') ;;
    *)
      lines=("${(@f)$(command ft completion --values $1 2>/dev/null)}")
      for line in $lines; do
        [[ -n $line ]] && described+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
      done
      _describe -t $1 $1 described ;;
  esac
}
_ft() {
  local command='' word kind='' i
  local -a described
  for ((i = 2; i < CURRENT; i++)); do
    word=$words[i]
    if [[ $word == -- ]]; then _files; return; fi
    if [[ $word == -* ]]; then
      kind=$(_ft_kind "$command" "$word")
      if [[ -n $kind && $word != *=* ]]; then
        (( i == CURRENT - 1 )) && break
        i=$((i + 1))
      fi
      kind=''
      continue
    fi
    [[ -z $command && $word == help ]] && continue
    case " $(_ft_words "$command") " in
      *" $word "*) [[ $command == models || $command == bench ]] || command=${command:+$command }$word ;;
    esac
  done
  if [[ -n $kind ]]; then
    _ft_of_kind $kind
  elif [[ $words[CURRENT] == -* ]]; then
    described=("${(@f)$(_ft_described_options "$command")}")
    _describe -o -t options option described
  else
    described=("${(@f)$(_ft_described_words "$command")}")
    [[ -n "$described" ]] && _describe -t commands command described
    _ft_of_kind "$(_ft_argument "$command")"
  fi
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _ft "$@"; else compdef _ft ft; fi
"""


def _zsh_lines(rows: list[tuple[str, str]]) -> str:
    lines = [f"{word.replace(':', chr(92) + ':')}:{about.replace('%%', '%')}" for word, about in rows]
    return "print -rl -- " + " ".join(map(shlex.quote, lines)) if lines else ""


def _zsh(found: list[CommandModel]) -> str:
    names = [("help", "explain a command"), *((model.path, model.help) for model in found)]
    words = "\n".join(_cases(found, lambda m: _zsh_lines(_words(m))))
    options = "\n".join(_cases(found, lambda m: _zsh_lines([(w, o.help) for o in m.options for w in o.words])))
    common = _zsh_lines([(word, "") for word in _COMMON.split()])
    descriptions = (
        f"_ft_described_words() {{\n  case $1 in\n    '') {_zsh_lines(names)} ;;\n{words}\n  esac\n}}\n"
        f"_ft_described_options() {{\n  case $1 in\n    '') {common} ;;\n{options}\n  esac\n}}"
    )
    return _ZSH.replace("@TABLES@", _tables(found)).replace("@DESCRIPTIONS@", descriptions)


_FISH = r"""# ft completion for fish:  ft completion fish > ~/.config/fish/completions/ft.fish
function __ft_command
    set -l typed (commandline -opc)
    set -l command
    for word in $typed[2..-1]
        if test "$word" = --
            echo --
            return
        end
        if string match -q -- '-*' $word; or test "$word" = help
            continue
        end
        if contains -- (string join ' ' -- $command $word) $__ft_commands
            set -a command $word
        end
    end
    string join ' ' -- $command
end
function __ft_at
    set -l at (__ft_command)
    test "$at" = "$argv[1]"
end
function __ft_values
    command ft completion --values $argv[1] 2>/dev/null
end
complete -c ft -f
"""


def _fish(found: list[CommandModel]) -> str:
    def quoted(text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("%%", "%") + "'"

    everything = flatten(found)
    lines = ["set -g __ft_commands " + " ".join(quoted(model.path) for model in everything), _FISH.rstrip()]
    for model in found:
        lines.append(f"complete -c ft -n '__ft_at \"\"' -a {quoted(model.path)} -d {quoted(model.help)}")
    for model in everything:
        at = quoted(f'__ft_at "{model.path}"')
        lines += [f"complete -c ft -n {at} -a {quoted(word)} -d {quoted(about)}" for word, about in _words(model)]
        if kind := _value_kind(model):
            lines.append(f"complete -c ft -n {at} {_fish_value(kind, quoted)}")
        for option in model.options:
            names = " ".join(f"-l {w[2:]}" if w.startswith("--") else f"-s {w[1:]}" for w in option.words)
            value = f" -r {_fish_value(option.kind, quoted)}" if option.kind else ""
            lines.append(f"complete -c ft -n {at} {names}{value} -d {quoted(option.help)}")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _fish_value(kind: str, quoted: Callable[[str], str]) -> str:
    if kind.startswith("="):
        return f"-a {quoted(kind[1:])}"
    if kind in ("files", "dirs"):
        return "-F"
    return "" if kind == "value" else f"-a '(__ft_values {kind})'"
