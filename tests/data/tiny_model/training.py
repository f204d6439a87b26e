"""The training loop: batches of like length, AdamW, and an end as soon as everything is answered right."""

from __future__ import annotations

import copy
import random
import time
from dataclasses import dataclass

import torch
from checks import Score, score
from lessons import Example, Teacher
from transformers import PreTrainedModel

IGNORED = -100
"""The label that the loss of transformers leaves out."""


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to learn."""

    peak_rate: float = 2e-3
    warm_up_steps: int = 50
    planned_steps: int = 1000
    """The rate stays at its peak for the first half of these and falls linearly in the second."""
    most_steps: int = 3000
    """Learning goes on at the lowest rate until everything is right, at most so long."""
    check_every: int = 100

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        warm_up = min(1.0, (step + 1) / self.warm_up_steps)
        if step < self.planned_steps // 2:
            return self.peak_rate * warm_up
        return self.peak_rate * warm_up * max(0.03, 2 * (1 - step / self.planned_steps))


class Batches:
    """Chooses what each step learns; the examples of a batch are about as long, to waste little padding."""

    # Fewer sentences first: the model has to find out that it may copy before it can copy from afar.
    NEAR_FILLER = (0, 1, 2, 4, 8, 12)
    FAR_FILLER = (4, 8, 16, 24, 40)
    NEAR_STEPS = 300

    def __init__(self, teacher: Teacher, seed: int) -> None:
        self.teacher = teacher
        self.rng = random.Random(seed)
        fixed = teacher.fixed_examples()
        self.short = [example for example in fixed if len(example.tokens) <= 120]
        self.middle = [example for example in fixed if 120 < len(example.tokens) <= 330]
        self.long = [example for example in fixed if len(example.tokens) > 330]
        self.forced = teacher.forced_calls()

    def choose(self, step: int) -> list[Example]:
        """The examples of a step: recall, stories, tool calls and short chats take turns."""
        turn = step % 5
        if turn in (0, 3):
            return self._recall(self.NEAR_FILLER if step < self.NEAR_STEPS else self.FAR_FILLER)
        if turn == 1:
            return self.rng.sample(self.long, 2)
        if turn == 2:
            return self.rng.sample(self.middle, 6) + self.rng.sample(self.forced, 2)
        return self.rng.sample(self.short, 16)

    def _recall(self, distances: tuple[int, ...]) -> list[Example]:
        filler_sentences = self.rng.choice(distances)
        count = max(4, min(24, 200 // (filler_sentences + 3)))
        return [
            self.teacher.recall(self.rng, filler_sentences, thinking=self.rng.random() < 0.3)
            for _ in range(count)
        ]


def as_tensors(examples: list[Example], padding: int) -> dict[str, torch.Tensor]:
    """A padded batch in the model's own words; only the learnt tokens have a label."""
    shape = (len(examples), max(len(example.tokens) for example in examples))
    inputs = torch.full(shape, padding)
    labels = torch.full(shape, IGNORED)
    mask = torch.zeros(shape, dtype=torch.long)
    for row, example in enumerate(examples):
        length = len(example.tokens)
        inputs[row, :length] = torch.tensor(example.tokens)
        labels[row, example.learnt_from : length] = inputs[row, example.learnt_from : length]
        mask[row, :length] = 1
    return {"input_ids": inputs, "labels": labels, "attention_mask": mask}


def train(
    model: PreTrainedModel, teacher: Teacher, schedule: Schedule, seed: int
) -> tuple[PreTrainedModel, Score]:
    """Train until a bfloat16 copy of the model is right in everything; return that copy and its score.

    The copy is what is served, so that it is the copy that is judged. The score of the last step comes
    back when the steps run out: look at ``complete``.
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
        loss = model(**as_tensors(batches.choose(step), model.config.pad_token_id)).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % schedule.check_every == 0:
            served = copy.deepcopy(model).to(torch.bfloat16).eval()
            result = score(served, teacher)
            print(
                f"step {step + 1}, {time.monotonic() - started:.0f} s, loss {loss.item():.4f}: {result}",
                flush=True,
            )
            if result.complete:
                break
    return served, result
