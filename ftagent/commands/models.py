"""List, pull, import, convert and verify models; say which fit"""

from __future__ import annotations

import argparse

from ftagent.context import Context

PASS_THROUGH = True
ACTIONS = ("ls", "show", "fit", "pull", "import", "convert", "verify", "synth", "tiny-hybrid")
FORWARDED_HELP = ACTIONS
PLACES = ("HF_ENDPOINT", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "OLLAMA_MODELS")  # of models; no secrets
WRITING = ("pull", "import", "convert", "synth", "tiny-hybrid")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"ft models {'|'.join(ACTIONS)} [arguments]"
    parser.epilog = (
        "ft models ACTION --help lists the arguments of an action.\n\n"
        "examples:\n"
        "  ft models ls                                 what is here (--json)\n"
        "  ft models fit                                which known models suit this machine\n"
        "  ft models pull smollm2-moe                   make the default model\n"
        "  ft models pull openai/gpt-oss-20b            get one from the hub, converted on the way\n"
        "  ft models import --list                      what Ollama, LM Studio and the hub's cache hold\n"
        "  ft models import ./checkpoint --name mine    convert a safetensors folder or a GGUF file\n"
        "  ft models convert mine mine-q4 --format q4_0\n"
    )
    parser.add_argument("action", choices=ACTIONS, help="what to do")
    parser.add_argument("--models-dir", metavar="DIR", help="default: ft's own data folder")


def run(args: argparse.Namespace, context: Context) -> int:
    from ftagent.local_engine.command import run_engine_tool
    from ftagent.paths import ensure

    settings = context.settings({"models_dir": args.models_dir})
    models_dir = context.models_dir(settings)
    if args.action in WRITING and not {"-h", "--help"} & set(args.rest):
        ensure(models_dir.resolve())  # may be a link to a larger disk
    # What opens closed repositories; no other credential reaches the engine.
    opens = ("HF_TOKEN",) if args.action == "pull" or "--costs" in args.rest else ()
    wanted = [args.action, *args.rest, "--models-dir", str(models_dir)]
    if args.action == "fit":
        wanted += ["--profiles-dir", str(context.paths.profiles)]
    return run_engine_tool(context.env, "models", *wanted, keep=(*PLACES, *opens))
