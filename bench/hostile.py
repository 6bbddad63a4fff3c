"""What `ft launch claude --dry-run` says in a home, a project and a shell that all want the agent elsewhere: `python bench/hostile.py [--json]`.

The home is made of everything that the tests try (tests/agents/homes.py): settings, project settings, logins, helpers, fallbacks, switches,
proxies and keys of paid services; all addresses and keys are made up. Nothing is launched. The row `hostile.<agent>.dry_run` has what
was printed as `text`; `files_changed` counts files of that home whose bytes differ afterwards, `secrets_shown` made-up keys in the output.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from engine.bench.rows import Row, show

ROOT = Path(__file__).parent.parent
FT = Path(sys.executable).parent / "ft"
WIDTH = 118
sys.path.insert(0, str(ROOT))
from tests.agents import homes  # noqa: E402


def furnish(home: Path, project: Path, agent: str) -> dict[str, str]:
    """Write the files of a hostile home and project; returns the variables of the shell."""
    hostile = homes.everything(agent)
    for path, content in hostile.files.items():
        place = project / path.removeprefix("project/") if path.startswith("project/") else home / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(homes.text_of(path, content, str(project)))
    return dict(hostile.env)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def dry_run(agent: str, model: str, models_dir: Path) -> list[Row]:
    """Rows of one agent. Ends the run when it cannot be installed or the plan was refused."""
    found = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "agents" / "install.py"), agent], capture_output=True, text=True
    )
    if found.returncode:
        sys.exit(f"hostile: {agent} cannot be installed: {found.stderr.strip()}")
    installed = json.loads(found.stdout)
    with tempfile.TemporaryDirectory(prefix="ft-hostile-") as folder:
        home = Path(folder) / "home"
        project = home / "src" / "shop"
        project.mkdir(parents=True)
        subprocess.run(["git", "init", "-q", "-b", "main", str(project)], check=True)
        shell = furnish(home, project, agent)
        (home / "models").symlink_to(models_dir.resolve())
        own = home / ".local" / "bin"
        own.mkdir(parents=True)
        (own / agent).write_text(f'#!/bin/sh\nexec {installed["executable"]} "$@"\n')
        (own / agent).chmod(0o755)
        path = [str(own), *installed["path"], "/usr/bin", "/bin"]
        env = {
            "HOME": str(home),
            "PATH": os.pathsep.join(path),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "COLUMNS": str(WIDTH),
        }
        env |= {"FT_MODELS_DIR": str(home / "models"), "XDG_RUNTIME_DIR": str(Path(folder) / "run"), "USER": "you"}
        env |= shell
        (Path(folder) / "run").mkdir(mode=0o700)
        before = contents(home)
        command = [str(FT), "launch", agent, "-m", model, "--dry-run"]
        done = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"hostile: the plan was refused: {done.stderr.strip()}")
        after = contents(home)
    changed = sorted(path for path, data in before.items() if after.get(path) != data)
    text = done.stdout.replace(folder, "…")
    shown = [secret for secret in homes.SECRETS if secret in text]
    more = {"baseline": None, "ratio": None, "samples": 1, "model": model}
    name = f"hostile.{agent}"
    return [
        {"name": f"{name}.dry_run", "value": len(text.splitlines()), "unit": "lines", **more, "text": text},
        {"name": f"{name}.files_changed", "value": len(changed), "unit": "files", **more, "of": len(before)},
        {"name": f"{name}.secrets_shown", "value": len(shown), "unit": "keys", **more},
        {"name": f"{name}.variables", "value": len(shell), "unit": "variables", **more},
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agent", default="claude", choices=sorted(homes.CHANNELS))
    parser.add_argument("--model", default="smollm2-moe", help="name in --models-dir")
    parser.add_argument("--models-dir", type=Path, default=Path.home() / ".local/share/ft/models")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = dry_run(args.agent, args.model, args.models_dir)
    show(rows, args.json)
    if not args.json:
        sys.stdout.write(str(rows[0]["text"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
