"""What a weight format and an activation precision change in the output: `python bench/accuracy.py [--json] [--quick]`.

The default model's weights with experts in each format, scored on real text (this project's own pages), against the same weights
in fp32 throughout. Rows `accuracy.<format>.<activations>`: mean Kullback-Leibler divergence of the next-token distribution in nats,
with the largest one, the largest logit error and the share of tokens whose most likely successor is the same. Matrices outside
the experts are fp32, bf16 or, beside quantised experts, Q8_0; the source is Q8_0 itself.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import sides
from tokenizers import Tokenizer

from engine.bench.rows import Row, row, show
from engine.kernels.contract import FORMATS

ROOT = Path(__file__).parent.parent
TEXTS = ("ARCHITECTURE.md", "CONTRIBUTING.md", "docs/agents.md")
SKIPPED = 16  # tokens at the start, where nothing is predictable
PIECE = 64
DENSE = {"f32": "f32", "bf16": "bf16"}
Logits = npt.NDArray[np.float32]


def make(models_dir: Path, format: str) -> Path:
    """The default model with experts in `format`."""
    name = f"smollm2-{format}"
    command = [sys.executable, "-P", "-c", _MAKE, str(models_dir), name, format, DENSE.get(format, "q8_0")]
    subprocess.run(command, check=True)
    return models_dir / name


_MAKE = """
import sys
from pathlib import Path
from engine.weights.builtin import smollm2_moe
smollm2_moe(Path(sys.argv[1]), *sys.argv[2:5])
"""


def text_tokens(directory: Path, count: int) -> list[int]:
    """The first tokens of TEXTS, in the model's own encoding."""
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    text = "\n\n".join((ROOT / name).read_text() for name in TEXTS)
    return list(tokenizer.encode(text, add_special_tokens=False).ids[:count])


def logits(directory: Path, tokens: list[int], activations: str, threads: int, path: Path) -> Logits:
    """[tokens, vocab], mapped from `path`."""
    with sides.ours(directory, threads, len(tokens) + 64, "--activations", activations) as side:
        vocab = side.ask({"op": "score", "tokens": tokens, "path": str(path)})["vocab"]
    return np.memmap(path, np.float32, "r", shape=(len(tokens), vocab))


def compare(reference: Logits, found: Logits) -> dict[str, npt.NDArray[np.float64]]:
    """Of every token but the first few: divergence in nats, largest logit error, whether the best token is the same.

    The error is taken between logits less their mean: a shift of all of them changes nothing.
    """
    parts: dict[str, list[npt.NDArray[np.float64]]] = {"kl": [], "error": [], "same": []}
    for at in range(SKIPPED, len(reference), PIECE):
        p, q = (side[at : at + PIECE].astype(np.float64) for side in (reference, found))
        log_p, log_q = (x - x.max(1, keepdims=True) for x in (p, q))
        log_p, log_q = (x - np.log(np.exp(x).sum(1, keepdims=True)) for x in (log_p, log_q))
        parts["kl"].append((np.exp(log_p) * (log_p - log_q)).sum(1))
        parts["error"].append(np.abs((p - p.mean(1, keepdims=True)) - (q - q.mean(1, keepdims=True))).max(1))
        parts["same"].append((p.argmax(1) == q.argmax(1)).astype(np.float64))
    return {name: np.concatenate(found_parts) for name, found_parts in parts.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="128 tokens instead of 1,024, and bf16 only")
    parser.add_argument("--formats", nargs="+", choices=FORMATS)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    formats = args.formats or (("bf16",) if args.quick else FORMATS)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        exact = make(work, "f32")
        tokens = text_tokens(exact, 128 if args.quick else 1024)
        reference = logits(exact, tokens, "f32", args.threads, work / "reference")
        for format in formats:
            directory = exact if format == "f32" else make(work, format)
            for activations in ("f32", "bf16"):
                if format == "f32" and activations == "f32":
                    continue
                found = compare(reference, logits(directory, tokens, activations, args.threads, work / "found"))
                rows.append(
                    row(f"accuracy.{format}.{activations}", "nats", [float(found["kl"].mean())])
                    | {
                        "samples": len(found["kl"]),
                        "largest_kl": float(f"{found['kl'].max():.3g}"),
                        "largest_logit_error": float(f"{found['error'].max():.3g}"),
                        "same_best": round(float(found["same"].mean()), 4),
                        "note": f"largest logit error {found['error'].max():.2g}, same best token {found['same'].mean():.1%}",
                    }
                )
    show(rows, args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
