"""The workloads: each is a folder beside this file with workload.toml, script.json and what the work starts from and ends in.

workload.toml: `agent`; `kv` (tokens of the engine); `options` (of `ft launch`); `env` (variables of the agent); `launches`, the agent's arguments, one list for each
time it is started; `check`, the project's own tests; `turns`, the answers of the main conversation that the script has; `[texts]`
with `count` and `bytes`: files of words made for reading. In arguments and script `{project}` is the project's folder and
`{texts.words}` as many words as `texts.words` says.
"""

from __future__ import annotations

import json
import random
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
NAMES = ("w1", "w2", "w3", "w4")
WORDS = """
account balance border bridge button candle castle circle column corner danger desert detail dinner doctor effect engine errand
estate expert fabric family father figure finger flight forest friend garden ground harbor height island jacket kettle ladder
lesson letter market memory minute mirror moment mother needle number object office orange parcel pencil people pepper person
planet pocket record reason report result return river rocket school season second shadow signal silver simple sister spring
square stable station street summer system table thing
""".split()  # noqa: SIM905 - a paragraph is easier to read


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    title: str
    agent: str
    launches: list[list[str]]
    turns: int
    kv: str = "64k"
    options: list[str] = field(default_factory=list)
    check: list[str] = field(default_factory=list)
    timeout_s: float = 600
    texts: dict[str, int] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return HERE / self.name

    @property
    def repository(self) -> Path | None:
        source = self.folder / "repo"
        return source if source.is_dir() else None

    @property
    def reference(self) -> str | None:
        """The diff that the work ends in."""
        path = self.folder / "reference.patch"
        return path.read_text() if path.exists() else None

    def arguments(self, project: Path) -> list[list[str]]:
        return [[self._filled(word, project) for word in words] for words in self.launches]

    def script(self, project: Path) -> dict[str, Any]:
        made: dict[str, Any] = json.loads(self._filled((self.folder / "script.json").read_text(), project))
        return made

    def write_texts(self, project: Path) -> None:
        """Files `part-01.txt` … that share nothing but their words, so that every tokenizer finds them equally long."""
        chance = random.Random(7)
        for number in range(1, self.texts.get("count", 0) + 1):
            lines = (" ".join(chance.choices(WORDS, k=9)) for _ in range(self.texts["bytes"] // 60))
            (project / f"part-{number:02}.txt").write_text("\n".join(lines) + "\n")

    def _filled(self, text: str, project: Path) -> str:
        words = " ".join(random.Random(11).choices(WORDS, k=self.texts.get("words", 0)))
        return text.replace("{project}", str(project)).replace("{texts.words}", words)


def load(name: str) -> Workload:
    return Workload(name=name, **tomllib.loads((HERE / name / "workload.toml").read_text()))
