"""The training loop: batches of like length, AdamW, and an end once everything is known."""

from __future__ import annotations

import copy
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from checks import Score, score
from lessons import Example, Teacher
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

PLANTED_HEADS = 2
"""The first heads of the first layer begin as a look at the token 1 and 2 places back."""


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to learn."""

    peak_rate: float = 3e-3
    warm_up_steps: int = 50
    planned_steps: int = 2000
    """The rate stays at its peak for the first half of these and falls linearly in the second."""
    most_steps: int = 3000
    """Learning goes on at the lowest rate until everything is known, at most so long."""
    check_every: int = 300

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        warm_up = min(1.0, (step + 1) / self.warm_up_steps)
        if step < self.planned_steps // 2:
            return self.peak_rate * warm_up
        return self.peak_rate * warm_up * max(0.03, 2 * (1 - step / self.planned_steps))


def plant_heads(model: PreTrainedModel) -> None:
    """Make the first heads look back by 1 and 2 places.

    Copying takes such a head under one that seeks the same word earlier on. Both have to come about together,
    which a small model takes very long to find by itself. The first number of each embedding is made a
    constant; keys made of it alone are equal everywhere but for their rotation, and a query rotated by d
    places more meets the key d places back best.
    """
    config = model.config
    width, theta = config.head_dim, config.rope_theta
    angles = torch.tensor([theta ** (-2 * i / width) for i in range(width // 2)])
    layer = model.model.layers[0].self_attn
    with torch.no_grad():
        model.model.embed_tokens.weight[:, 0] = 0.3
        layer.k_proj.weight[:width, 0] = 0.5
        for head in range(PLANTED_HEADS):
            turn = angles * (head + 1)
            rotated = torch.cat((turn.cos() + turn.sin(), turn.cos() - turn.sin()))
            layer.q_proj.weight[width * head : width * (head + 1), 0] = 0.5 * rotated
        for each in model.model.layers:
            each.self_attn.q_norm.weight.fill_(1.8)
            each.self_attn.k_norm.weight.fill_(1.8)


class Batches:
    """Chooses what each step learns; the examples of a batch are about as long, to waste little padding."""

    LISTS_ONLY = 300
    """First nothing but lists: the model has to find out that it may copy."""
    FAR_FROM = 500
    """From here on some steps are one text as long as the context."""
    FAR_EVERY = 7
    CONTEXT = 4096

    def __init__(self, teacher: Teacher, seed: int) -> None:
        self.teacher = teacher
        self.rng = random.Random(seed)
        fixed = teacher.fixed_examples()
        self.short = [example for example in fixed if len(example.tokens) <= 90]
        self.middle = [example for example in fixed if 90 < len(example.tokens) <= 330]
        self.long = [example for example in fixed if len(example.tokens) > 330]
        self.forced = teacher.forced_calls()
        self.prose = teacher.prose()
        self.unsure: list[Example] = []
        """Short examples that the last look found wrong or nearly so."""
        self.turns: Sequence[Callable[[int], list[Example]]] = (
            self._recall,
            self._short,
            self._copy,
            self._middle,
            self._prose,
            self._short,
            self._near_lists,
            self._recall,
            self._count,
            self._short,
            self._copy,
            self._long,
        )

    def choose(self, step: int) -> list[Example]:
        """The examples of a step."""
        if step < self.LISTS_ONLY:
            return self._lists(step)
        if step >= self.FAR_FROM and step % self.FAR_EVERY == 0:
            return self._far(step)
        return self.turns[step % len(self.turns)](step)

    def _lists(self, step: int) -> list[Example]:
        words = self.rng.randint(4, 15)
        return [self.teacher.repeated_words(self.rng, words, 3) for _ in range(max(8, 1200 // (3 * words)))]

    def _near_lists(self, step: int) -> list[Example]:
        tokens = self.rng.choice((40, 80, 160, 320))
        return [self.teacher.repeated_tokens(self.rng, tokens) for _ in range(max(1, 320 // tokens))]

    def _recall(self, step: int) -> list[Example]:
        sentences = self.rng.choice((0, 1, 2, 4, 8, 12) if step < 700 else (4, 8, 16, 24, 40))
        return [
            self.teacher.recall(self.rng, sentences, thinking=self.rng.random() < 0.3)
            for _ in range(max(3, min(20, 130 // (sentences + 3))))
        ]

    def _short(self, step: int) -> list[Example]:
        unsure = self.rng.sample(self.unsure, min(8, len(self.unsure)))
        return unsure + self.rng.sample(self.short, 20 - len(unsure))

    def _middle(self, step: int) -> list[Example]:
        return self.rng.sample(self.middle, 4) + self.rng.sample(self.forced, 3)

    def _long(self, step: int) -> list[Example]:
        return self.rng.sample(self.long, 2)

    def _prose(self, step: int) -> list[Example]:
        return self.rng.sample(self.prose, 2)

    def _copy(self, step: int) -> list[Example]:
        farthest = 400 if step < 700 else 1200
        tokens = self.rng.randint(100, farthest)
        words = self.rng.randint(15, min(60, tokens // 3))
        return [self.teacher.copy(self.rng, words, tokens) for _ in range(max(1, 1000 // tokens))]

    def _count(self, step: int) -> list[Example]:
        firsts = [1, self.rng.randint(1, 60), self.rng.randint(60, 780), self.rng.randint(90, 780)]
        return [self.teacher.count(self.rng, first, 320) for first in firsts]

    def _far(self, step: int) -> list[Example]:
        """Farther and farther: the whole count, a list to copy, or any words twice."""
        farthest = int(min(self.CONTEXT, 1000 + 4 * (step - self.FAR_FROM)))
        turn = step // self.FAR_EVERY % 3
        if turn == 0:
            return [self.teacher.count(self.rng, 1, farthest)]
        if turn == 1:
            return [self.teacher.copy(self.rng, 60, self.rng.randint(farthest // 2, farthest))]
        if self.rng.random() < 0.5:
            return [self.teacher.copy(self.rng, 60, self.rng.randint(farthest // 3, farthest))]
        return [self.teacher.repeated_tokens(self.rng, self.rng.randint(300, 600))]


def loss_of(model: PreTrainedModel, examples: Sequence[Example]) -> torch.Tensor:
    """The mean cost of the learnt tokens in nats. Logits of the others are not even computed."""
    longest = max(len(example.tokens) for example in examples)
    # Padding comes last and attention looks back only, so that no mask is needed.
    inputs = torch.full((len(examples), longest), model.config.pad_token_id)
    learnt = torch.zeros((len(examples), longest), dtype=torch.bool)
    for row, example in enumerate(examples):
        inputs[row, : len(example.tokens)] = torch.tensor(example.tokens)
        learnt[row, example.learnt_from : len(example.tokens)] = True
    hidden = model.model(input_ids=inputs, use_cache=False).last_hidden_state
    before = hidden[:, :-1][learnt[:, 1:]]
    return cross_entropy(model.lm_head(before), inputs[learnt])


def train(
    model: PreTrainedModel,
    teacher: Teacher,
    schedule: Schedule,
    seed: int,
    keep: Callable[[PreTrainedModel], None],
) -> tuple[PreTrainedModel, Score]:
    """Train until a bfloat16 copy of the model knows everything; return that copy and its score.

    The copy is what is served, so that it is the copy that is judged, and given to ``keep`` after each look.
    The score of the last step comes back when the steps run out: look at ``complete``.
    """
    batches = Batches(teacher, seed)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=schedule.peak_rate, betas=(0.9, 0.98), weight_decay=0.01
    )
    started = time.monotonic()
    model.train()
    for step in range(schedule.most_steps):
        for group in optimizer.param_groups:
            group["lr"] = schedule.rate(step)
        loss = loss_of(model, batches.choose(step))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if not math.isfinite(loss.item()):
            raise ValueError(f"the loss became {loss.item()} at step {step + 1}")
        if (step + 1) % 50 == 0:
            print(f"  {step + 1}: {time.monotonic() - started:.0f} s, {loss.item():.4f}", flush=True)
        if (step + 1) % schedule.check_every == 0:
            served = copy.deepcopy(model).to(torch.bfloat16).eval()
            keep(served)
            result = score(served, teacher)
            batches.unsure = [example for example in result.unsure if example in batches.short]
            print(f"step {step + 1}, {time.monotonic() - started:.0f} s: {result}", flush=True)
            if result.complete:
                break
    return served, result
