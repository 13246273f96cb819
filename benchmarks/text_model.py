"""A small GPT-2 trained here on text: the second pretrained model that detection is measured on.

    python benchmarks/text_model.py train [--shape code] [--seed 0] [--work FOLDER]

The text is the source of the running Python's standard library (code, comments, docstrings; no
tests, no generated tables): any Python has it, and nothing is downloaded. A byte-level BPE is
trained on it, then a GPT-2 of one of the `SHAPES` on random windows of the token stream: at first
as they are, repeating what source code repeats; later a share of them has a stretch of its first
half once more in its second half, which saves most of the steps that induction heads would take to
form. A killed run resumes from its last checkpoint. The result is a Hugging Face folder of
half-precision weights under `benchmarks/text_models/`, with a card that tells the recipe, the
text's sha256 and the losses.
`text_models.py` measures detection on it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import sysconfig
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save
from torch import Tensor
from torch.nn.functional import cross_entropy

from imir_detect.files import write_atomically

HOME = Path(__file__).parent / "text_models"
SKIPPED = {"site-packages", "test", "tests", "idle_test", "encodings", "__pycache__"}
END = "<|endoftext|>"
HELD_OUT = 20  # every twentieth file is kept for the loss


@dataclass(frozen=True)
class Shape:
    """What sets one trained model apart from another.

    `repeats`: (step, share) pairs: the share of windows with a repeated stretch from there on.
    """

    layers: int = 4
    heads: int = 6
    width: int = 96
    inner: int = 96
    context: int = 64
    vocabulary: int = 512
    tied: bool = True
    spread: float = 0.1  # of fresh weights
    steps: int = 1600
    repeats: tuple[tuple[int, float], ...] = ((200, 0.5), (1100, 0.9))
    batch: int = 64
    rate: float = 3e-3
    decay: float = 0.01
    warmup: int = 100
    tail: float = 0.15


SHAPES = {
    "code": Shape(),
    "code-untied": Shape(layers=3, heads=8, width=128, inner=64, vocabulary=384, tied=False),
}


# -- the text -------------------------------------------------------------------------------------


def library() -> list[str]:
    """The standard library's Python files, in the order of their names."""
    root = Path(sysconfig.get_path("stdlib"))
    files = sorted(root.rglob("*.py"), key=lambda f: f.relative_to(root).as_posix())
    return [
        f.read_bytes().decode("utf-8", "replace").replace("\r\n", "\n")
        for f in files
        if not SKIPPED & set(f.relative_to(root).parts) and not f.name.startswith("_sysconfigdata")
    ]


def digest(texts: list[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def train_tokenizer(texts: list[str], size: int) -> Any:
    """Byte-level BPE, as GPT-2's; token 0 ends a file."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def stream(tokenizer: Any, texts: list[str]) -> Tensor:
    """All files one after another, an end token after each."""
    rows = [np.array([*e.ids, 0], dtype=np.int64) for e in tokenizer.encode_batch(texts)]
    return torch.from_numpy(np.concatenate(rows))


def windows(tokens: Tensor, n: int, length: int, generator: torch.Generator) -> Tensor:
    """Random windows (n, length) of the stream."""
    start = torch.randint(len(tokens) - length, (n, 1), generator=generator)
    return tokens[start + torch.arange(length)]


def with_repeats(rows: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """The first of the windows (about `share` of them) with a stretch of the first half, an eighth
    of the window or more, written over a place of the second half."""
    rows, half = rows.clone(), rows.shape[1] // 2
    for row in rows[: round(share * len(rows))]:
        size = int(torch.randint(half // 4, half, (1,), generator=generator))
        source, target = (
            int(torch.randint(half - size + 1, (1,), generator=generator)) for _ in range(2)
        )
        row[half + target : half + target + size] = row[source : source + size].clone()
    return rows


# -- the model ------------------------------------------------------------------------------------


def fresh(shape: Shape, seed: int) -> Any:
    import transformers

    torch.manual_seed(seed)
    config = transformers.GPT2Config(
        vocab_size=shape.vocabulary,
        n_embd=shape.width,
        n_layer=shape.layers,
        n_head=shape.heads,
        n_inner=shape.inner,
        n_positions=shape.context,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
        tie_word_embeddings=shape.tied,
        initializer_range=shape.spread,
    )
    return transformers.GPT2LMHeadModel(config)


def loss_of(model: Any, rows: Tensor, first: int = 0) -> Tensor:
    """Mean cross-entropy (nats) of the tokens after place `first`."""
    logits = model(rows).logits[:, first:-1]
    return cross_entropy(logits.flatten(0, 1), rows[:, first + 1 :].flatten())


@torch.no_grad()
def evaluate(model: Any, held_out: Tensor, shape: Shape) -> dict[str, float]:
    """Loss on held-out files, and on the second of two periods of random tokens."""
    generator = torch.Generator().manual_seed(1_000_003)
    text = windows(held_out, 64, shape.context, generator)
    half = shape.context // 2
    period = torch.randint(1, shape.vocabulary, (64, half), generator=generator)
    return {
        "held_out": float(loss_of(model, text)),
        "random": float(loss_of(model, period)),
        "repeated": float(loss_of(model, torch.cat([period, period], 1), first=half)),
    }


def train(
    shape: Shape, seed: int, texts: list[str], tokenizer: Any, work: Path
) -> tuple[Any, list[dict[str, float]]]:
    """AdamW with linear warm-up, constant rate, linear tail; the data depend on seed and step."""
    held = [t for i, t in enumerate(texts) if i % HELD_OUT == 0]
    kept = [t for i, t in enumerate(texts) if i % HELD_OUT]
    tokens, held_out = stream(tokenizer, kept), stream(tokenizer, held)
    model = fresh(shape, seed).train()
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=shape.rate, betas=(0.9, 0.95), weight_decay=shape.decay, fused=True
    )
    done, history = restore(work, model, optimiser)
    start = time.process_time()
    for step in range(done, shape.steps):
        left = (shape.steps - step) / (shape.tail * shape.steps)
        for group in optimiser.param_groups:
            group["lr"] = shape.rate * min(1.0, (step + 1) / shape.warmup, left)
        generator = torch.Generator().manual_seed(seed * 1_000_000 + step)
        rows = windows(tokens, shape.batch, shape.context, generator)
        share = max((share for at, share in shape.repeats if step >= at), default=0.0)
        rows = with_repeats(rows, share, generator)
        loss = loss_of(model, rows)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if (step + 1) % 100 == 0 or step + 1 == shape.steps:
            row = {
                "step": step + 1,
                "loss": float(loss.detach()),
                **evaluate(model, held_out, shape),
            }
            history.append(row)
            checkpoint(work, step + 1, history, model, optimiser)
            print(row, f"{time.process_time() - start:.0f} s of CPU", flush=True)
    return model.eval(), history


def checkpoint(
    work: Path, step: int, history: list[dict[str, float]], model: Any, optimiser: Any
) -> None:
    """One file with parameters and moments, replaced at once; and the weights of this step."""
    own = dict(model.named_parameters())
    tensors = {f"parameter/{k}": p.detach().contiguous() for k, p in own.items()}
    for k, p in own.items():
        tensors |= {f"{m}/{k}": v.contiguous() for m, v in optimiser.state[p].items()}
    meta = {"run": json.dumps({"step": step, "history": history})}
    write_atomically(work / "checkpoint.safetensors", save(tensors, meta))
    write_folder(work / "steps" / f"step-{step:05d}", model)


def restore(work: Path, model: Any, optimiser: Any) -> tuple[int, list[dict[str, float]]]:
    from safetensors import safe_open

    file = work / "checkpoint.safetensors"
    if not file.exists():
        return 0, []
    tensors = load_file(file)
    with safe_open(file, "pt") as opened:
        meta = json.loads(opened.metadata()["run"])
    for k, p in model.named_parameters():
        p.data.copy_(tensors[f"parameter/{k}"])
        optimiser.state[p] = {m: tensors[f"{m}/{k}"] for m in ("step", "exp_avg", "exp_avg_sq")}
    return meta["step"], meta["history"]


# -- the result -----------------------------------------------------------------------------------


def write_folder(folder: Path, model: Any) -> None:
    """config.json and half-precision weights, as transformers reads them."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {k: v.detach().half().contiguous() for k, v in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del tensors["lm_head.weight"]
    write_atomically(folder / "model.safetensors", save(tensors, {"format": "pt"}))
    config = model.config.to_dict() | {"dtype": "float16", "architectures": ["GPT2LMHeadModel"]}
    config.pop("_name_or_path", None)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["train"])
    parser.add_argument("--shape", choices=list(SHAPES), default="code")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, help="folder of checkpoints")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    shape, name = SHAPES[arguments.shape], f"{arguments.shape}-{arguments.seed}"
    work = arguments.work or Path("text-model-runs") / name
    work.mkdir(parents=True, exist_ok=True)
    texts = library()
    tokenizer = train_tokenizer([t for i, t in enumerate(texts) if i % HELD_OUT], shape.vocabulary)
    model, history = train(shape, arguments.seed, texts, tokenizer, work)
    out = arguments.out or HOME / name
    write_folder(out, model)
    tokenizer.save(str(out / "tokenizer.json"))
    weights = (out / "model.safetensors").read_bytes()
    card = {
        "name": name,
        "shape": asdict(shape),
        "seed": arguments.seed,
        "parameters": sum(p.numel() for p in model.parameters()),
        "text": {
            "what": "Python files of the standard library",
            "python": platform.python_version(),
            "files": len(texts),
            "sha256": digest(texts),
        },
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
        "history": history,
        "licence": "MIT",
    }
    (out / "recipe.json").write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({k: v for k, v in card.items() if k != "history"}, indent=1))


if __name__ == "__main__":
    main()
