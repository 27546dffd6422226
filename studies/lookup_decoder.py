"""A small Llama, made from its configuration and trained to look things up, on prompts whose right passage is known.

Needs transformers. On one core it trains in less than a minute, prints how often its greedy answer is right on prompts
it has not seen, and asks faithfulness, localisation, certificate and symmetry about the passages: the map of the
passage that holds the answer should be first, that of another passage last, and a constant one undefined.

    python studies/lookup_decoder.py
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

import heatproof
from heatproof.data import Vocabulary
from heatproof.features import Passages
from heatproof.statistics.intervals import rate_interval

KEYS = tuple(["ann", "ben", "cleo", "dan", "eve", "fay", "gus", "hal", "ida", "jon", "kim", "leo"])
PLACES = tuple(
    ["rome", "oslo", "lima", "kiev", "bonn", "cork", "nice", "bern", "graz", "york", "pisa", "lund"]
)
WORDS = Vocabulary((*KEYS, *PLACES, "where", "."))
PASSAGES, QUESTIONS = 4, 8
HELD_OUT = 1 << 20
"""Prompts of this number are for validation, those of the next for the test; a training draws far fewer."""


def drawn(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Who is spoken of and where each of them lives, (count, PASSAGES) numbers of keys and of places."""
    g = torch.Generator().manual_seed(seed)
    return tuple(
        torch.rand(count, len(KEYS), generator=g).argsort(1)[:, :PASSAGES] for _ in range(2)
    )  # type: ignore[return-value]


def prompts(count: int, seed: int) -> tuple[heatproof.Batch, list[str]]:
    """Prompts whose `_region` is the passage that holds the answer, and the answers."""
    keys, places = (part.tolist() for part in drawn(count, seed))
    right = torch.randint(
        PASSAGES, (count,), generator=torch.Generator().manual_seed(seed)
    ).tolist()
    texts = [
        [
            *(f"{KEYS[k]} {PLACES[p]} ." for k, p in zip(who, where, strict=True)),
            f"where {KEYS[who[i]]}",
        ]
        for who, where, i in zip(keys, places, right, strict=True)
    ]
    batch = heatproof.prompts(WORDS, texts)
    region = batch.aux["_passages"] == torch.tensor(right)[:, None] + 1
    return replace(batch, aux={**batch.aux, "_region": region}), [
        PLACES[w[i]] for w, i in zip(places, right, strict=True)
    ]


def lessons(rows: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Training sequences without end: passages, then questions with their answers, which alone are learnt.

    Questions come again, or the decoder would learn to name a place that was not named yet.
    """
    word = {name: i for i, name in enumerate(WORDS.words, 2)}
    for step in range(HELD_OUT):
        keys, places = drawn(rows, step)
        key, place = 2 + keys, 2 + len(KEYS) + places
        text = torch.stack([key, place, torch.full_like(key, word["."])], 2).flatten(1)
        which = torch.randint(
            PASSAGES, (rows, QUESTIONS), generator=torch.Generator().manual_seed(step)
        )
        asked = torch.stack(
            [torch.full_like(which, word["where"]), key.gather(1, which), place.gather(1, which)], 2
        )
        unread = asked.clone()
        unread[..., :2] = -100
        yield (
            torch.cat([text, asked.flatten(1)], 1),
            torch.cat([torch.full_like(text, -100), unread.flatten(1)], 1),
        )


def trained(steps: int, rows: int = 64) -> LlamaForCausalLM:
    """The decoder, trained with Adam."""
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    config = LlamaConfig(
        vocab_size=len(WORDS), max_position_embeddings=64, initializer_range=0.05, **sizes
    )
    net = LlamaForCausalLM(config)
    optimiser = torch.optim.Adam(net.parameters(), lr=3e-3, betas=(0.9, 0.99))
    for step, (ids, labels) in zip(range(steps), lessons(rows), strict=False):
        loss = F.cross_entropy(net(ids).logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    return net.eval()


def exact(model: heatproof.Model, batch: heatproof.Batch, target: Tensor, seed: int) -> Tensor:
    """1 on the passage that holds the answer."""
    return batch.aux["_region"].float()


def another(model: heatproof.Model, batch: heatproof.Batch, target: Tensor, seed: int) -> Tensor:
    """1 on the passage after it."""
    right = (batch.aux["_region"] * batch.aux["_passages"]).amax(1, keepdim=True)
    return (batch.aux["_passages"] == right % PASSAGES + 1).float()


def constant(model: heatproof.Model, batch: heatproof.Batch, target: Tensor, seed: int) -> Tensor:
    """1 everywhere."""
    return torch.ones(batch.x.shape)


def main() -> None:
    """Train, test, and ask the bench."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=150, help="of training")
    parser.add_argument("--samples", type=int, default=100, help="that the bench is asked about")
    parser.add_argument(
        "--validate",
        action="store_true",
        help="judge nothing; right answers to the prompts for that",
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    net = trained(args.steps)
    print(f"trained in {time.perf_counter() - start:.0f} s")
    model = heatproof.decoder(net, WORDS, tokens=1, name="look-up")
    batch, answers = prompts(500, HELD_OUT + (not args.validate))
    said = model.fixed(batch).aux["answer"]
    right = sum(
        WORDS.decode(row[row >= 0]) == [answer] for row, answer in zip(said, answers, strict=True)
    )
    low, high = rate_interval(right, len(answers))
    print(f"right answers: {right / len(answers):.1%} ({low:.1%} to {high:.1%})")
    if args.validate:
        return
    features = Passages()
    maps = {
        "exact": exact, "another": another, "constant": constant, "random": heatproof.RandomMap(),
        "input_x_gradient": heatproof.InputXGradient(), "integrated_gradients": heatproof.IntegratedGradients(steps=20),
        "occlusion": heatproof.Occlusion(window=1, stride=1), "ablation": heatproof.FeatureAblation(features=features),
        "lime": heatproof.Lime(features=features, samples=64),
        "kernel_shap": heatproof.KernelShap(features=features, samples=16),
    }  # fmt: skip
    axes = [
        heatproof.Faithfulness(features=features, fractions=(0.25, 0.5, 0.75), metrics=("road",)),
        heatproof.Localisation(),
        heatproof.Certificate(features=features, radii=(1, 3), fraction=0.25),
    ]
    columns = ["evaluation", "explainer", "raw", "raw_low", "raw_high", "rank_low", "rank_high"]
    run = heatproof.evaluate(model, batch[: args.samples], maps, axes, references=16)
    print(run.ranking()[columns].round(3).to_string(index=False))
    chooser = heatproof.decoder(net, WORDS, options=PLACES, name="look-up")
    symmetry = heatproof.Symmetry(group=heatproof.groups.PassagePermutation(features), elements=24)
    moved = {name: maps[name] for name in ("input_x_gradient", "ablation", "lime")}
    run = heatproof.evaluate(chooser, batch[: args.samples], moved, [symmetry], references=16)
    table = run.table()
    for measure in ("model_agreement", "model_invariance", "equivariance"):
        print(
            table[table.measure == measure].groupby("explainer").value.mean().round(3).to_dict(),
            measure,
        )
    print(f"all in {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
