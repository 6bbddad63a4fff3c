"""Getting a model from a hub: converted while it streams past, so that the checkpoint itself never lies on the disk.

Every safetensors file is read once from beginning to end. A tensor is kept in memory until what is made of it is written; what
still waits at the end of a file is set aside on disk. A file counts when its checksum was right, and an interrupted pull goes on
with the first file that does not count yet.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from engine.errors import Unsupported, WeightsError
from engine.weights.agreement import check_agreement
from engine.weights.arrival import Arrived, RemoteFile, cut, queued
from engine.weights.checkpoint import directory_facts
from engine.weights.choice import choose
from engine.weights.config import text_config
from engine.weights.convert import ModelFacts, packing_ops, weight_map_of, write_facts
from engine.weights.hub import Repository
from engine.weights.manifest import Meter, Progress
from engine.weights.map import WeightMap
from engine.weights.recipes import Recipes
from engine.weights.safetensors import SafetensorsSource
from engine.weights.scatter import ScatterWriter, Sums
from engine.weights.shapes import dense_shapes
from engine.weights.sizes import built_shape, expert_shape_of
from engine.weights.space import require_space
from engine.weights.store import InUse
from engine.weights.writer import staged

_JOURNAL = "pull.json"
_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"
_NEEDED = ("config.json", "tokenizer.json")
_SMALL = (*_NEEDED, "generation_config.json", "tokenizer_config.json", "chat_template.jinja")


def pull(
    repo: str,
    models_dir: Path,
    name: str,
    format: str,
    dense_format: str,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Path:
    """Write `models_dir/name` from the hub's repository and return it; formats as `convert` has them. `progress` counts bytes of
    the checkpoint, `say` is told in sentences what is kept and what is rounded.

    Disk: never more than the result and one tensor or layer beside it, which is checked before anything large is fetched.
    Raises NotFound without such a repository; Unsupported for an architecture or format that is not offered; WeightsError for a
    network that fails, a disk without room, and files that arrive corrupt. What has arrived is kept then, for the next try.
    """
    models_dir.mkdir(parents=True, exist_ok=True)
    with _workplace(models_dir / f".{name}.pull", say) as folder:
        repository = Repository(repo)
        places, facts = _open(repository, folder)
        work = _Work(repository, folder, places, facts, format, dense_format)
        for note in work.notes:
            say(note)
        work.run(progress)
        with staged(models_dir, name) as directory:
            for file in work.finish(name):
                (folder / file).rename(directory / file)
    return models_dir / name


def _open(repository: Repository, folder: Path) -> tuple[dict[str, RemoteFile], ModelFacts]:
    for file in _NEEDED:
        if file not in repository.files:
            raise WeightsError(f"{repository.repo} has no {file}.", "Choose a repository in the transformers format.")
    for file in (*_SMALL, _INDEX):
        if file in repository.files:
            repository.fetch(file, folder)
    index = folder / _INDEX
    if not index.is_file():
        if _SINGLE not in repository.files:
            raise WeightsError(
                f"{repository.repo} has no safetensors files.",
                "Choose a repository with them, or get its GGUF file yourself: ft models import FILE --name NAME",
            )
        index.write_text(json.dumps({"weight_map": {"": _SINGLE}}))
    facts = directory_facts(folder, "bf16")
    weight_map_of(
        facts.config, f"{repository.repo}/config.json"
    )  # an architecture that is not offered says so before anything large is asked for
    try:
        shards = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WeightsError(f"{repository.repo}/{_INDEX} is not a shard index ({error!r}).") from error
    if missing := [shard for shard in shards if shard not in repository.files]:
        raise WeightsError(f"{repository.repo} has no {missing[0]}, which its index names.")
    arrived: Arrived = {}
    files = {shard: RemoteFile(*repository.tensors(shard), arrived) for shard in shards}
    return files, replace(facts, source=f"{repository.repo} at {repository.commit[:12]}")


class _Work:
    """One pull: what is to be made, and what is done already."""

    def __init__(
        self,
        repository: Repository,
        folder: Path,
        files: dict[str, RemoteFile],
        facts: ModelFacts,
        format: str,
        dense_format: str,
    ) -> None:
        self._repository, self._folder, self._files, self._facts = repository, folder, files, facts
        self._arrived: Arrived = next(iter(files.values())).arrived
        source = SafetensorsSource(folder, open=lambda path: files[str(path.relative_to(folder))])
        self._map = check_agreement(source, facts.config, f"{repository.repo}/config.json")
        chosen = choose(source, self._map, format, dense_format)
        self.notes = chosen.notes
        self._order = {"repo": repository.repo, "commit": repository.commit, "experts": chosen.experts}
        self._order |= {"dense": json.dumps(chosen.dense, sort_keys=True)}
        self._done: list[str] = []
        self._writer = _writer(folder, self._map, facts, chosen.experts, dict(chosen.dense), self._resume())
        self._recipes = Recipes(self._map, source, self._writer)
        self._check_resumed()
        for stored in list(self._arrived):
            self._recipes.arrived(stored)  # completes nothing: what was complete is written

    def run(self, progress: Progress | None) -> None:
        """Stream every file that something still needs."""
        self._require_space()
        self._writer.open()
        try:
            left = [file for file in self._files if file not in self._done]
            left = [file for file in left if any(self._recipes.wants(name) for name in self._files[file].places)]
            meter = Meter(sum(self._repository.files[file].size_bytes for file in self._files), progress)
            for file in self._files:
                if file not in left:
                    meter.advance(self._repository.files[file].size_bytes)
            for file in left:
                self._stream(file, meter)
        except BaseException:
            self._writer.close()
            raise

    def finish(self, name: str) -> list[str]:
        """Write the manifest; the names of the files that make the model."""
        write_facts(self._writer, self._map, self._facts, name)
        self._writer.close()
        return [*self._writer.files, "config.json", "tokenizer.json", "chat_template.jinja", "ftw.json"]

    def _stream(self, file: str, meter: Meter) -> None:
        remote = self._files[file]
        with queued(self._repository.stream(file)) as chunks:
            for name, tensor in cut(chunks, remote, self._recipes.wants, meter.advance):
                self._arrived[name] = tensor
                for spent in self._recipes.arrived(name):
                    del self._arrived[spent]
        self._writer.sync()
        self._done.append(file)
        self._remember()

    def _require_space(self) -> None:
        have = sum(file.stat().st_blocks * 512 for file in self._folder.iterdir())
        require_space(self._folder, self._writer.total_bytes - have)

    def _resume(self) -> Sums:
        """What an earlier try of the same pull has written; everything else of it is removed."""
        try:
            journal = json.loads((self._folder / _JOURNAL).read_bytes())
            if journal["order"] == self._order:
                sums = Sums.from_json(journal["sums"])
                self._done = [str(file) for file in journal["done"]]
                with safe_open(self._folder / journal["aside"], framework="pt") as aside:
                    for name in aside.keys():  # noqa: SIM118 - a safetensors handle is not a mapping
                        self._arrived[name] = aside.get_tensor(name)
                return sums
        except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError):
            pass
        self._done.clear()
        self._arrived.clear()
        for file in self._folder.glob("*.bin"):
            file.unlink()
        return Sums()

    def _check_resumed(self) -> None:
        gone = {name for file in self._done for name in self._files[file].places} - self._arrived.keys()
        if lost := gone.intersection(self._recipes.needs()):
            raise WeightsError(
                f"{self._folder} has lost {min(lost)}.", f"Remove it and start again: rm -r {self._folder}"
            )

    def _remember(self) -> None:
        aside = self._folder / f"aside-{len(self._done)}.safetensors"
        save_file(self._arrived, aside)
        journal = {"order": self._order, "done": self._done, "aside": aside.name, "sums": self._writer.sums.to_json()}
        fresh = self._folder / f"{_JOURNAL}.new"
        with fresh.open("w", encoding="utf-8") as out:
            json.dump(journal, out)
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(self._folder / _JOURNAL)
        for old in self._folder.glob("aside-*.safetensors"):
            if old != aside:
                old.unlink()


def _writer(
    folder: Path, weight_map: WeightMap, facts: ModelFacts, format: str, dense: dict[str, str], sums: Sums
) -> ScatterWriter:
    config = text_config(facts.config)
    if not weight_map.experts:
        raise Unsupported("Only Mixture-of-Experts models are pulled.", "ft models import FOLDER takes dense ones.")
    shapes = dense_shapes(config)
    entries = [(name, built_shape(tensor, shapes), dense.get(name, "")) for name, tensor in weight_map.dense.items()]
    return ScatterWriter(
        folder,
        packing_ops(),
        entries,
        [layer.layer for layer in weight_map.experts],
        weight_map.geometry.experts,
        expert_shape_of(weight_map, config, format),
        sums,
    )


@contextmanager
def _workplace(folder: Path, say: Callable[[str], None]) -> Iterator[Path]:
    """The folder of a pull, for one process at a time. It is removed at the end, and after a failure unless it holds files that
    the next try can use."""
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InUse(f"{folder} is in use: another ft models pull runs.", "Wait for it to end.") from None
        try:
            yield folder
        except BaseException:
            if (folder / _JOURNAL).is_file():
                size = sum(file.stat().st_blocks * 512 for file in folder.iterdir())
                say(f"{size / 1e9:.1f} GB are kept for the next try. To give it up: rm -r {folder}")
            else:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(folder, ignore_errors=True)
