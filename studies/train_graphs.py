"""A graph network on the molecules of Mutagenicity: exactly invariant to the order of the atoms.

Molecules with more than 60 atoms (5 %) are left out. Molecules that the Weisfeiler-Leman test cannot tell apart would
be on the same side of the split; there are none.
"""

from __future__ import annotations

import hashlib

import torch
from common import arguments, restored, save_concept, save_sets, split, train_network, whole
from nets import GNN

from heatproof import Model
from heatproof.data import open_data
from heatproof.types import Batch

ATOMS = 60
CLASSES = ("mutagen", "not a mutagen")  # labels 0 and 1 of the file
OXYGEN, NITROGEN, HALOGENS = (
    1,
    4,
    (2, 6, 9),
)  # columns of the features; chlorine, bromine and iodine


def model() -> Model:
    """The trained network, for a study file."""
    return restored("graphs", "gnn", GNN)


def weisfeiler_leman(graphs: Batch, rounds: int = 4) -> list[str]:
    """One word per graph, the same for isomorphic graphs: node colours refined by those of the neighbours."""
    found = []
    for x, mask, adjacency in zip(
        graphs.x, graphs.aux["mask"], graphs.aux["adjacency"], strict=True
    ):
        n = int(mask.sum())
        neighbours = [torch.nonzero(row[:n]).flatten().tolist() for row in adjacency[:n]]
        colours = [_word(repr(row)) for row in x[:n].tolist()]
        for _ in range(rounds):
            colours = [
                _word(c + "|" + ",".join(sorted(colours[j] for j in neighbours[i])))
                for i, c in enumerate(colours)
            ]
        found.append(_word(",".join(sorted(colours))))
    return found


def _word(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def concepts(train: Batch) -> dict[str, torch.Tensor]:
    """Which molecules have a nitro group (N bound to two O), an azo group (N bound to N), a halogen.

    The bonds are known without their order, so N–N counts as azo too.
    """
    bound = train.aux["adjacency"] @ train.x
    nitrogen = train.x[..., NITROGEN] > 0
    return {
        "nitro": (nitrogen & (bound[..., OXYGEN] >= 2)).any(1),
        "azo": (nitrogen & (bound[..., NITROGEN] >= 1)).any(1),
        "halide": (train.x[..., HALOGENS] > 0).any(2).any(1),
    }


def main() -> None:
    args = arguments("graphs", __doc__ or "")
    graphs = whole(open_data(args.data / "graphs" / "Mutagenicity.zip", length=ATOMS))
    words = weisfeiler_leman(graphs)
    print(
        f"{len(words) - len(set(words))} of {len(words)} molecules cannot be told from another one"
    )
    train, test = split(graphs, 0.25, args.seed, words)
    save_sets(args.out, train, test, CLASSES)
    for name, present in concepts(train).items():
        save_concept(args.out, name, train, present, CLASSES)
    options = {"features": train.x.shape[2], "classes": len(CLASSES)}
    train_network(
        args.out / "gnn", GNN, options, train, test, CLASSES, epochs=30, lr=2e-3, seed=args.seed
    )


if __name__ == "__main__":
    main()
