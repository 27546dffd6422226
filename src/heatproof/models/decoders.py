"""Decoders, as those of the transformers library: the log-probability of an answer, or of each of several options."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heatproof.data.sequences import IGNORED, encoder
from heatproof.errors import UserError
from heatproof.models.model import Model
from heatproof.models.network import scores_in
from heatproof.models.tasks import ANSWER, Answer, Options, Task


def decoder(
    network: nn.Module,
    tokenizer: Any = None,
    *,
    options: Sequence[Any] = (),
    tokens: int = 8,
    name: str | None = None,
) -> Model:
    """A decoder as a `Model` whose readout is the log-probability of an answer, or, with `options`, of each of them.

    `network(inputs_embeds=, attention_mask=)` gives logits (B, L, V), bare or as `.logits`, and `get_input_embeddings`
    its table, as in transformers. Samples are token ids (B, L), padded behind, with an `attention_mask`, as
    `heatproof.prompts` makes them. An answer that the data do not bring is decoded greedily from the sample as it is,
    `tokens` long or up to the tokenizer's `eos_token_id`, which is then part of it. Options are texts for the
    `tokenizer` or lists of token ids; give them one length, for a longer one is less probable.

    >>> decoder(nn.Linear(2, 2))
    Traceback (most recent call last):
    heatproof.errors.UserError: Linear has no get_input_embeddings(), which decoders of transformers have
    """
    embed = getattr(network, "get_input_embeddings", lambda: None)()
    path = next((path for path, part in network.named_modules() if part is embed), None)
    if path is None:
        raise UserError(
            f"{type(network).__name__} has no get_input_embeddings(), which decoders of transformers have"
        )
    if tokenizer is None and any(isinstance(option, str) for option in options):
        raise UserError(
            "options as texts need the tokenizer: decoder(network, tokenizer, options=…)"
        )
    listed = [list(encoder(tokenizer)(each) if isinstance(each, str) else each) for each in options]
    if tokens < 1 or len(listed) == 1 or not all(listed):
        raise UserError(
            f"tokens must be at least 1, options several and none empty; got {tokens} and {options}"
        )
    module = Decoder(
        network,
        listed,
        max(map(len, listed), default=tokens),
        getattr(tokenizer, "eos_token_id", None),
    )
    classes = [str(option).strip() for option in options] or ["the answer", "its lead"]
    task: Task = Options() if listed else Answer()
    return Model(
        module,
        classes=classes,
        name=name or type(network).__name__,
        embedding=f"network.{path}",
        task=task,
    )


class Decoder(nn.Module):
    """A decoder that reads an answer behind a prompt (B, L), ids or vectors; without one it gives the answer itself."""

    def __init__(
        self, network: nn.Module, options: list[list[int]], tokens: int, end: int | None
    ) -> None:
        super().__init__()
        self.network, self.options, self.tokens, self.end = network, options, tokens, end

    def forward(
        self, x: Tensor, attention_mask: Tensor | None = None, answer: Tensor | None = None
    ) -> Any:
        """`logits`, the table (B, K) at an `answer` (B, L + T); or the `answer` to the prompt."""
        mask = (
            x.new_ones(x.shape[:2], dtype=torch.int64) if attention_mask is None else attention_mask
        )
        vectors = self.network.get_input_embeddings()(x)  # type: ignore[operator]
        if answer is None:
            with torch.no_grad():
                return {ANSWER: self._answered(vectors, mask)}
        if not self.options:
            return {"logits": torch.stack(self._read(vectors, mask, answer), 1)}
        first = (answer >= 0).long().argmax(1, keepdim=True)
        if (
            self.tokens == 1
        ):  # what stands there does not reach back to the place before it, which one pass reads
            logits = self._logits(vectors, mask, answer).take_along_dim(first[..., None] - 1, 1)[
                :, 0
            ]
            return {"logits": logits.log_softmax(1)[:, [option[0] for option in self.options]]}
        turn = torch.arange(mask.shape[1] + self.tokens, device=mask.device) - first
        filled = torch.tensor(
            [[*option, *[IGNORED] * (self.tokens - len(option))] for option in self.options]
        ).to(turn)
        said = torch.where(
            (turn >= 0) & (turn < self.tokens), filled[:, turn.clamp(0, self.tokens - 1)], IGNORED
        )
        return {"logits": torch.stack([self._read(vectors, mask, each)[0] for each in said], 1)}

    def _answered(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """The greedy answer behind the last token of each prompt; with options just where one stands."""
        place = torch.arange(mask.shape[1] + self.tokens, device=mask.device).expand(len(mask), -1)
        first = (place[:, : mask.shape[1]] * (mask != 0)).amax(1, keepdim=True) + 1
        if self.options:
            return torch.where((place >= first) & (place < first + self.tokens), 0, IGNORED)
        answer, going = torch.full_like(place, IGNORED), torch.ones_like(first, dtype=torch.bool)
        for turn in range(self.tokens):
            token = (
                self._logits(vectors, mask, answer)
                .take_along_dim((first + turn - 1)[..., None], 1)
                .argmax(2)
            )
            answer = torch.where((place == first + turn) & going, token, answer)
            going = going & (token != (IGNORED if self.end is None else self.end))
        return answer

    def _logits(self, vectors: Tensor, mask: Tensor, answer: Tensor) -> Tensor:
        """Logits (B, L + T, V) of prompt and answer; the answer stands right behind the prompt, before its padding."""
        more, there, taken = (
            answer.shape[1] - mask.shape[1],
            answer >= 0,
            signature(self.network.forward).parameters,
        )
        said = self.network.get_input_embeddings()(answer.clamp(min=0))  # type: ignore[operator]
        whole = torch.where(there[..., None], said, F.pad(vectors, (0, 0, 0, more)))
        place = torch.arange(answer.shape[1], device=mask.device).expand(
            answer.shape
        )  # no hidden token shifts them
        known = {k: v for k, v in {"position_ids": place, "use_cache": False}.items() if k in taken}
        attended = (F.pad(mask, (0, more)) != 0) | there
        return scores_in(self.network(inputs_embeds=whole, attention_mask=attended.long(), **known))

    def _read(self, vectors: Tensor, mask: Tensor, answer: Tensor) -> list[Tensor]:
        """The log-probability of the answer and the least lead of its tokens, (B,) each."""
        most = torch.arange(answer.shape[1] - mask.shape[1], device=answer.device)
        places = (answer >= 0).long().argmax(1, keepdim=True) + most
        ids, logits = answer.gather(1, places), self._logits(vectors, mask, answer)
        logits, real, own = (
            logits.take_along_dim(places[..., None] - 1, 1),
            ids >= 0,
            ids.clamp(min=0)[..., None],
        )
        said = logits.log_softmax(2).gather(2, own)[..., 0].masked_fill(~real, 0)
        lead = logits.gather(2, own)[..., 0] - logits.scatter(2, own, -torch.inf).amax(2)
        return [said.sum(1), lead.masked_fill(~real, torch.inf).amin(1)]
