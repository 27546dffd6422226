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
    """Return a language model as a `Model` whose scores are log-probabilities of answers to a prompt.

    Without `options`, the score is the log-probability of one answer. Data may bring the answer; else it is generated
    greedily from the unchanged prompt, `tokens` long or up to and including the tokenizer's `eos_token_id`. With
    `options`, there is one score per option, as for a multiple-choice question. Options are texts for the `tokenizer` or
    lists of token ids. Options of one length are comparable; longer ones are less probable.

    The `network` is a decoder of transformers, or works like one: `network(inputs_embeds=, attention_mask=)` gives
    logits (B, L, V), bare or as `.logits`, and `get_input_embeddings()` its embedding layer. Samples are token ids
    (B, L), padded at the end, with an `attention_mask`, as `heatproof.prompts` makes them.

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
        if not isinstance(option, str):
            ids_of_options.append(list(option))
            continue
        if tokenizer is None:
            raise UserError(
                "options as texts need the tokenizer: decoder(network, tokenizer, options=…)"
            )
        encode = encoder(tokenizer)
        ids_of_options.append(list(encode(option)))
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
        # The columns that `Decoder._read` gives: the log-probability of the answer, and the margin of its tokens.
        task, classes = Answer(), ["the answer", "its lead"]
    return Model(
        Decoder(network, ids_of_options, longest, end),
        classes=classes,
        name=name or type(network).__name__,
        embedding=f"network.{embedding}",
        task=task,
    )


class Decoder(nn.Module):
    """A language model that scores an answer to a prompt (B, L) of token ids or vectors, or generates one.

    `options` are token ids of several answers to score, or empty. `tokens` is the length T of the longest answer, and
    `end` the token that ends a generated one. An `answer` (B, L + T) has token ids at the positions behind the prompt and
    `IGNORED` at all others.
    """

    def __init__(
        self, network: nn.Module, options: list[list[int]], tokens: int, end: int | None
    ) -> None:
        """Take the network and the options, each a list of token ids; see the class."""
        super().__init__()
        self.network = network
        self.options = options
        self.tokens = tokens
        self.end = end

    def forward(
        self, x: Tensor, attention_mask: Tensor | None = None, answer: Tensor | None = None
    ) -> Any:
        """Return {"logits": scores (B, K)} of an `answer` (B, L + T), or of each option; without one, {ANSWER: answer}.

        Scores are log-probabilities of the K options, or the two numbers of `_read` for a single answer. A generated
        answer has no gradient. With options, only the position of the `answer` counts, not its tokens.
        """
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
            # Wide enough for the longest option, which may be longer than an answer that the data bring.
            placed = self._placed(option, mask.shape[1] + self.tokens, first)
            log_probability, _ = self._read(vectors, mask, placed)
            log_probabilities.append(log_probability)
        return {"logits": torch.stack(log_probabilities, 1)}

    def _next_token(self, vectors: Tensor, mask: Tensor, answer: Tensor, first: Tensor) -> Tensor:
        """Return the log-probabilities (B, options) of options that are one token each, from a single pass.

        `first` (B, 1) is the position of the answer. Its token is predicted at the position before, which does not
        attend to the answer, so one pass serves all options.
        """
        logits = self._logits(vectors, mask, answer)
        next_token = logits.take_along_dim(first[..., None] - 1, 1)[:, 0].log_softmax(1)
        return next_token[:, [option[0] for option in self.options]]

    def _placed(self, option: list[int], width: int, first: Tensor) -> Tensor:
        """Return an option's token ids as an answer (B, width) that begins at `first` (B, 1), `IGNORED` elsewhere."""
        padding = [IGNORED] * (self.tokens - len(option))
        padded_option = torch.tensor([*option, *padding], device=first.device)
        # Which token of the option belongs at each position; negative before the answer.
        token_index = torch.arange(width, device=first.device) - first
        is_answer = (token_index >= 0) & (token_index < self.tokens)
        token = padded_option[token_index.clamp(0, self.tokens - 1)]
        return torch.where(is_answer, token, IGNORED)

    def _answered(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """Return the answer (B, L + T) that the network generates greedily behind the last token of each prompt.

        `vectors` (B, L, E) and `mask` (B, L) are the prompt and its attention mask. With options nothing is generated: the
        result has 0 at the positions of the answer. All other positions are `IGNORED`.
        """
        length = mask.shape[1]
        position = torch.arange(length + self.tokens, device=mask.device).expand(len(mask), -1)
        last_of_prompt = (position[:, :length] * (mask != 0)).amax(1, keepdim=True)
        first = last_of_prompt + 1
        if self.options:
            is_answer = (position >= first) & (position < first + self.tokens)
            return torch.where(is_answer, 0, IGNORED)
        answer = torch.full_like(position, IGNORED)
        goes_on = torch.ones_like(first, dtype=torch.bool)  # False behind the end token of a sample
        for turn in range(self.tokens):
            logits = self._logits(vectors, mask, answer)
            before = (first + turn - 1)[..., None]
            token = logits.take_along_dim(before, 1).argmax(2)
            answer = torch.where((position == first + turn) & goes_on, token, answer)
            if self.end is not None:
                goes_on = goes_on & (token != self.end)
        return answer

    def _logits(self, vectors: Tensor, mask: Tensor, answer: Tensor) -> Tensor:
        """Run the network on prompt and answer, and return its logits (B, L + T, V).

        `vectors` (B, L, E) and `mask` (B, L) are the prompt. The tokens of the `answer` (B, L + T) follow the last token of
        the prompt, in place of its padding.
        """
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
        """Return the log-probability of an answer, and the smallest margin of its tokens, (B,) each.

        The margin of a token is its logit minus the largest logit of any other token: positive for all tokens exactly
        where greedy decoding gives the answer. `vectors` (B, L, E) and `mask` (B, L) are the prompt, and `answer`
        (B, L + T) the token ids behind it.
        """
        longest = answer.shape[1] - mask.shape[1]
        first = (answer >= 0).long().argmax(1, keepdim=True)
        positions = first + torch.arange(longest, device=answer.device)
        ids = answer.gather(1, positions)
        is_token = ids >= 0  # shorter answers have IGNORED at the end
        token = ids.clamp(min=0)[..., None]
        # A token is predicted at the position before it.
        all_logits = self._logits(vectors, mask, answer)
        logits = all_logits.take_along_dim(positions[..., None] - 1, 1)
        log_probabilities = logits.log_softmax(2).gather(2, token)[..., 0]
        # The scatter removes the token itself, so that the maximum is over the others.
        best_other = logits.scatter(2, token, -torch.inf).amax(2)
        margins = logits.gather(2, token)[..., 0] - best_other
        log_probability = log_probabilities.masked_fill(~is_token, 0).sum(1)
        smallest_margin = margins.masked_fill(~is_token, torch.inf).amin(1)
        return [log_probability, smallest_margin]


def embedding_path(network: nn.Module) -> str | None:
    """Return the dotted path of a network's token embedding, as `get_input_embeddings()` names it; None without one.

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
