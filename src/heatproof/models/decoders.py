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
    """Return a `Model` of a decoder whose readout is the log-probability of an answer, or, with `options`, of each.

    `network(inputs_embeds=, attention_mask=)` gives logits (B, L, V), bare or as `.logits`, and `get_input_embeddings`
    its table, as in transformers. Samples are token ids (B, L), padded behind, with an `attention_mask`, as
    `heatproof.prompts` makes them. An answer that the data do not bring is decoded greedily from the sample as it is,
    `tokens` long or up to the tokenizer's `eos_token_id`, which is then part of it. Options are texts for the
    `tokenizer` or lists of token ids; give them one length, for a longer one is less probable.

    >>> decoder(nn.Linear(2, 2))
    Traceback (most recent call last):
    heatproof.errors.UserError: Linear has no get_input_embeddings(), which decoders of transformers have
    """
    embedding = embedding_path(network)
    if embedding is None:
        raise UserError(
            f"{type(network).__name__} has no get_input_embeddings(), which decoders of transformers have"
        )
    ids_of_options = []
    for option in options:
        if isinstance(option, str) and tokenizer is None:
            raise UserError(
                "options as texts need the tokenizer: decoder(network, tokenizer, options=…)"
            )
        ids = encoder(tokenizer)(option) if isinstance(option, str) else option
        ids_of_options.append(list(ids))
    if tokens < 1 or len(ids_of_options) == 1 or not all(ids_of_options):
        raise UserError(
            f"tokens must be at least 1, options several and none empty; got {tokens} and {options}"
        )
    longest = max(map(len, ids_of_options), default=tokens)
    end = getattr(tokenizer, "eos_token_id", None)
    task: Task
    if options:
        task, classes = Options(), [str(option).strip() for option in options]
    else:
        task, classes = Answer(), ["the answer", "its lead"]
    return Model(
        Decoder(network, ids_of_options, longest, end),
        classes=classes,
        name=name or type(network).__name__,
        embedding=f"network.{embedding}",
        task=task,
    )


class Decoder(nn.Module):
    """A decoder that reads an answer behind a prompt (B, L), ids or vectors; without one it gives the answer itself.

    `tokens` is the length T of the longest answer, and `end` the token that ends one.
    """

    def __init__(
        self, network: nn.Module, options: list[list[int]], tokens: int, end: int | None
    ) -> None:
        super().__init__()
        self.network = network
        self.options = options
        self.tokens = tokens
        self.end = end

    def forward(
        self, x: Tensor, attention_mask: Tensor | None = None, answer: Tensor | None = None
    ) -> Any:
        """Return `logits`, the table (B, K) at an `answer` (B, L + T); without one the `answer` to the prompt."""
        mask = attention_mask
        if mask is None:
            mask = x.new_ones(x.shape[:2], dtype=torch.int64)
        vectors = self.network.get_input_embeddings()(x)  # type: ignore[operator]
        if answer is None:
            with torch.no_grad():
                return {ANSWER: self._answered(vectors, mask)}
        if not self.options:
            return {"logits": torch.stack(self._read(vectors, mask, answer), 1)}
        first = (answer >= 0).long().argmax(1, keepdim=True)
        if self.tokens == 1:
            return {"logits": self._next_token(vectors, mask, answer, first)}
        log_probabilities = []
        for option in self.options:
            # As wide as the longest option, which may be longer than an answer of the data.
            placed = self._placed(option, mask.shape[1] + self.tokens, first)
            log_probability, _ = self._read(vectors, mask, placed)
            log_probabilities.append(log_probability)
        return {"logits": torch.stack(log_probabilities, 1)}

    def _next_token(self, vectors: Tensor, mask: Tensor, answer: Tensor, first: Tensor) -> Tensor:
        """Return the log-probabilities (B, options) of options of one token each, by a single pass.

        They are predicted at the place before `first`, which what stands in `answer` does not reach.
        """
        logits = self._logits(vectors, mask, answer)
        next_token = logits.take_along_dim(first[..., None] - 1, 1)[:, 0].log_softmax(1)
        return next_token[:, [option[0] for option in self.options]]

    def _placed(self, option: list[int], width: int, first: Tensor) -> Tensor:
        """Return the ids of an option as an answer (B, width) that begins at `first` (B, 1)."""
        missing = self.tokens - len(option)
        padded = torch.tensor([*option, *[IGNORED] * missing], device=first.device)
        turn = torch.arange(width, device=first.device) - first
        is_answer = (turn >= 0) & (turn < self.tokens)
        return torch.where(is_answer, padded[turn.clamp(0, self.tokens - 1)], IGNORED)

    def _answered(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """Return the greedy answer (B, L + T) behind the last token of each prompt; with options just its place."""
        length = mask.shape[1]
        position = torch.arange(length + self.tokens, device=mask.device).expand(len(mask), -1)
        last_of_prompt = (position[:, :length] * (mask != 0)).amax(1, keepdim=True)
        first = last_of_prompt + 1
        if self.options:
            is_answer = (position >= first) & (position < first + self.tokens)
            return torch.where(is_answer, 0, IGNORED)
        answer = torch.full_like(position, IGNORED)
        goes_on = torch.ones_like(first, dtype=torch.bool)
        for turn in range(self.tokens):
            logits = self._logits(vectors, mask, answer)
            before = (first + turn - 1)[..., None]
            token = logits.take_along_dim(before, 1).argmax(2)
            answer = torch.where((position == first + turn) & goes_on, token, answer)
            if self.end is not None:
                goes_on = goes_on & (token != self.end)
        return answer

    def _logits(self, vectors: Tensor, mask: Tensor, answer: Tensor) -> Tensor:
        """Return logits (B, L + T, V) of prompt and answer; the answer stands right behind the prompt, before its padding."""
        is_answer = answer >= 0
        added = answer.shape[1] - mask.shape[1]
        answer_vectors = self.network.get_input_embeddings()(answer.clamp(min=0))  # type: ignore[operator]
        padded_vectors = F.pad(vectors, (0, 0, 0, added))
        inputs = torch.where(is_answer[..., None], answer_vectors, padded_vectors)
        attended = (F.pad(mask, (0, added)) != 0) | is_answer
        arguments: dict[str, Any] = {"attention_mask": attended.long()}
        parameters = signature(self.network.forward).parameters
        if "position_ids" in parameters:
            # Else they are counted along the attention mask, and hiding a token would shift those behind it.
            positions = torch.arange(answer.shape[1], device=mask.device)
            arguments["position_ids"] = positions.expand(answer.shape)
        if "use_cache" in parameters:
            arguments["use_cache"] = False
        return scores_in(self.network(inputs_embeds=inputs, **arguments))

    def _read(self, vectors: Tensor, mask: Tensor, answer: Tensor) -> list[Tensor]:
        """Return the log-probability of the answer, and the least lead of its tokens over all others, (B,) each."""
        turns = torch.arange(answer.shape[1] - mask.shape[1], device=answer.device)
        positions = (answer >= 0).long().argmax(1, keepdim=True) + turns
        ids = answer.gather(1, positions)
        is_token = ids >= 0
        token = ids.clamp(min=0)[..., None]
        # A token is predicted at the position before it.
        logits = self._logits(vectors, mask, answer).take_along_dim(positions[..., None] - 1, 1)
        log_probabilities = logits.log_softmax(2).gather(2, token)[..., 0]
        best_other = logits.scatter(2, token, -torch.inf).amax(2)
        lead = logits.gather(2, token)[..., 0] - best_other
        return [
            log_probabilities.masked_fill(~is_token, 0).sum(1),
            lead.masked_fill(~is_token, torch.inf).amin(1),
        ]


def embedding_path(network: nn.Module) -> str | None:
    """Return the dotted path of the layer that `get_input_embeddings()` gives; None where there is none.

    >>> embedding_path(nn.Linear(2, 2)) is None
    True
    """
    if not hasattr(network, "get_input_embeddings"):
        return None
    try:
        embedding: Any = network.get_input_embeddings()  # type: ignore[operator]
    except NotImplementedError:  # transformers' answer for models of images
        return None
    paths: list[str] = [path for path, layer in network.named_modules() if layer is embedding]
    return paths[0] if paths else None
