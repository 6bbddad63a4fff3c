"""Talk to the model in the terminal, without an agent"""

from __future__ import annotations

import argparse
import sys

from ftagent.chat import Answer, Chat
from ftagent.context import Context
from ftagent.errors import FtError, UsageError
from ftagent.local_engine.provision import EngineChoice, provide
from ftagent.output import Progress, note, print_json
from ftagent.settings.values import parse_tokens
from ftagent.text import require_utf8


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "ft run [options] [PROMPT]"
    parser.add_argument(
        "prompt", nargs="?", help="the question; - reads it from stdin; none: a conversation on a terminal"
    )
    parser.add_argument("-m", "--model", metavar="ID", help="default: the model being served, else the configured one")
    parser.add_argument("--system", metavar="TEXT", help="system prompt")
    parser.add_argument("--max-output", metavar="N", help="longest answer, in tokens")
    parser.add_argument("--no-start", action="store_true", help="fail when no engine is running")
    parser.add_argument("--wait", metavar="S", help="give up after S seconds without progress")
    parser.add_argument("--engine", metavar="URL", help="an engine that runs elsewhere")
    parser.add_argument("--force", action="store_true", help="go on where a check refuses")
    parser.add_argument("--json", action="store_true", help="one JSON document with the answer and its usage")
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing but results and errors")
    parser.add_argument("-v", "--verbose", action="store_true", help="tokens and times after each answer")


def run(args: argparse.Namespace, context: Context) -> int:
    prompt = _prompt(args)
    settings = context.settings({"wait": args.wait, "engine": args.engine, "max_output": args.max_output})
    quiet = args.quiet or args.json
    progress = Progress(quiet)
    choice = EngineChoice(settings, args.model, not args.no_start, early=True, force=args.force, quiet=quiet)
    prospect = provide(choice, context, progress.show)
    progress.done()
    assert prospect.running is not None
    limit = parse_tokens(settings.values["max_output"]) if settings.values["max_output"] else None
    chat = Chat(prospect.running.client, prospect.model.name, args.system, limit)
    if prompt is None:
        return _converse(chat, args, context)
    answer = _ask(chat, prompt, args, context)
    if args.json:
        document = {
            "schema": "ft.answer/1",
            "model": chat.model,
            "text": answer.text,
            "thinking": answer.thinking or None,
        }
        times = {"ttft_s": answer.ttft_s, "total_s": answer.total_s}
        print_json({**document, "finish": answer.finish, "usage": answer.usage or None, **times})
    return 0


def _prompt(args: argparse.Namespace) -> str | None:
    """The question; None for a conversation. Without a terminal the question may come on stdin."""
    if args.prompt is not None and args.prompt != "-":
        text = str(args.prompt)
    elif args.prompt == "-" or not sys.stdin.isatty():
        text = _standard_input()
    elif args.json:
        raise UsageError("--json needs a prompt.", 'ft run --json "a question"')
    else:
        return None
    if not text.strip():
        raise UsageError("The prompt is empty.", 'ft run "a question"')
    require_utf8("The prompt", text)
    require_utf8("--system", args.system or "")
    return text


def _standard_input() -> str:
    """All of it, without the newline that ends its last line: the model would take it for part of the question."""
    try:
        text = sys.stdin.read()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"What stands on standard input is not valid UTF-8: {error.reason}.", "Convert it: iconv -t utf-8"
        ) from None
    return text.removesuffix("\n").removesuffix("\r")


def _ask(chat: Chat, prompt: str, args: argparse.Namespace, context: Context) -> Answer:
    style = context.out
    said = False

    def write(text: str) -> None:
        nonlocal said
        said = True
        if not args.json:
            sys.stdout.write(text)
            sys.stdout.flush()

    # thinking is shown only where it can be told from the answer
    think = (lambda text: write(style(text, "dim"))) if style.enabled else (lambda text: None)
    try:
        answer = chat.ask(prompt, write, think)
    except FtError:
        if said:
            write("\n")  # so that the error has a line of its own
        raise
    write("\n")
    if answer.finish == "length" and not args.json:
        note("ft: the answer was cut at the output limit; longer with --max-output N")
    if args.verbose:
        note(_figures(answer))
    return answer


def _figures(answer: Answer) -> str:
    usage = answer.usage
    details = usage.get("prompt_tokens_details") or {}
    parts = [f"prompt {usage.get('prompt_tokens', '-')} tokens", f"cached {details.get('cached_tokens', '-')}"]
    parts.append(f"output {usage.get('completion_tokens', '-')}")
    if answer.ttft_s is not None:
        parts.append(f"TTFT {answer.ttft_s:.2f} s")
    return "ft: " + ", ".join([*parts, f"total {answer.total_s:.2f} s"])


def _converse(chat: Chat, args: argparse.Namespace, context: Context) -> int:
    import readline  # noqa: F401 - gives input() its line editing

    if not args.quiet:
        note(f"ft: talking to {chat.model}; Ctrl-C stops an answer, Ctrl-D ends")
    while True:
        try:
            prompt = input(">>> ")
        except EOFError:
            print()
            return 0
        except KeyboardInterrupt:
            print()
            continue
        if not prompt.strip():
            continue
        try:
            _ask(chat, prompt, args, context)
        except KeyboardInterrupt:
            print()
        except FtError as error:
            note(f"ft: {error.message} {error.hint}".rstrip())
