"""Reading the arguments a user typed for an agent, without owning that agent's parser."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harnesses.contract import HarnessError, LaunchContext
from harnesses.launchdata import LaunchData


def has(args: Sequence[str], *flags: str) -> bool:
    """Whether one of `flags` is present, as `--flag`, `--flag=value`, `-f` or `-fvalue`; nothing after `--` counts."""
    return any(_matches(argument, flag) for argument in _options(args) for flag in flags)


def value_of(args: Sequence[str], *flags: str) -> str | None:
    """The value of the last of `flags`: `--flag value` or `--flag=value`."""
    found = values_of(args, *flags)
    return found[-1] if found else None


def values_of(args: Sequence[str], *flags: str) -> list[str]:
    """Every value of `flags`, in order."""
    options = list(_options(args))
    found: list[str] = []
    for index, argument in enumerate(options):
        for flag in flags:
            if argument == flag and index + 1 < len(options):
                found.append(options[index + 1])
            elif argument.startswith(f"{flag}="):
                found.append(argument[len(flag) + 1 :])
            elif _short(flag) and argument.startswith(flag) and len(argument) > len(flag):
                found.append(argument[len(flag) :].removeprefix("="))
    return found


def without(args: Sequence[str], flag: str) -> list[str]:
    """The arguments without `flag` and its value."""
    kept: list[str] = []
    skip = False
    for index, argument in enumerate(args):
        if skip:
            skip = False
        elif argument == "--":
            return [*kept, *args[index:]]
        elif argument == flag:
            skip = True
        elif not argument.startswith(f"{flag}="):
            kept.append(argument)
    return kept


def options_end(args: Sequence[str], with_value: Sequence[str]) -> int:
    """The index of the first argument that is neither an option nor the value of one of `with_value`."""
    at = 0
    while at < len(args) and args[at].startswith("-") and args[at] not in ("-", "--"):
        at += 2 if args[at] in with_value else 1
    return min(at, len(args))


def first_word(args: Sequence[str]) -> str | None:
    """The first argument when it is not an option: a subcommand or a prompt."""
    return args[0] if args and not args[0].startswith("-") else None


def refuse_second_choice(title: str, args: Sequence[str], *choosing: str) -> None:
    """Raises HarnessError when the user's own arguments choose a conversation beside the one that ft continues."""
    for flag in choosing:
        if has(args, flag):
            raise HarnessError(
                f"{title} {flag} chooses a conversation, and ft continues another one.", f"Leave {flag} out."
            )


def refuse_redirection(data: LaunchData, args: Sequence[str]) -> None:
    """Raises HarnessError for an argument that would send the agent to another place than this engine."""
    for refusal in data.refuse:
        for flag in refusal.flags:
            if has(args, flag):
                raise HarnessError(
                    f"{data.title} {flag} is set by ft for this launch: {refusal.why}.", f"Leave {flag} out."
                )


def refuse_other_model(context: LaunchContext) -> None:
    """Raises HarnessError for a `--model` that this engine does not serve."""
    model = value_of(context.args, "--model", "-m")
    if model is not None and model != context.model:
        raise HarnessError(
            f"--model {model} is not the model of this engine.", f"Leave it out, or say {context.model}."
        )


def _options(args: Sequence[str]) -> Iterable[str]:
    for argument in args:
        if argument == "--":
            return
        yield argument


def _matches(argument: str, flag: str) -> bool:
    return argument == flag or argument.startswith(f"{flag}=") or (_short(flag) and argument.startswith(flag))


def _short(flag: str) -> bool:
    return len(flag) == 2 and flag[0] == "-" and flag[1] != "-"
