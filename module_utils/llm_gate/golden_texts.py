"""Eight texts of about 256 tokens each, one a domain, for comparing logprobs with those of a baseline.

A fault of some tokens only has a chance to show in one of them. They are ours and in no training corpus, so
that a model neither knows them by heart nor finds them strange.
"""

from __future__ import annotations

TEXTS: dict[str, str] = {
    "english": (
        "The ferry left the island at seven, an hour before the fog came in. Nine passengers stood on "
        "the upper deck and watched the lights of the harbour grow small. One of them, a retired "
        "surveyor, had drawn every path on the island by hand because he did not trust the printed maps, "
        "which put the chapel on the wrong side of the stream. He showed the drawings to a schoolteacher "
        "who was going home for the winter. She asked him why he had measured the same field three "
        "times. He answered that the first time he had been in a hurry, the second time it had rained, "
        "and the third time he had wanted to see whether the first two agreed. They had not. By the time "
        "the ferry reached the mainland the fog had closed behind it, the buoys could no longer be seen, "
        "and the captain sounded his horn at every turn of the channel. Nobody on deck spoke until the "
        "ropes had been made fast. Then the surveyor rolled up his papers, wished the teacher a mild "
        "winter, and went to look for the office where such corrections are handed in."
    ),
    "python": (
        "from dataclasses import dataclass, field\n\n\n@dataclass\nclass Account:\n    owner: str\n    "
        "balance: int = 0\n    history: list[tuple[str, int]] = field(default_factory=list)\n\n    def "
        "deposit(self, amount: int) -> None:\n        if amount <= 0:\n            raise "
        'ValueError(f"cannot deposit {amount}")\n        self.balance += amount\n        '
        'self.history.append(("deposit", amount))\n\n    def withdraw(self, amount: int) -> '
        'None:\n        if amount > self.balance:\n            raise ValueError(f"{self.owner} has only '
        '{self.balance}")\n        self.balance -= amount\n        self.history.append(("withdraw", '
        "amount))\n\n\ndef transfer(source: Account, target: Account, amount: int) -> None:\n    "
        "source.withdraw(amount)\n    try:\n        target.deposit(amount)\n    except "
        "ValueError:\n        source.deposit(amount)\n        raise\n\n\ndef richest(accounts: "
        "list[Account]) -> Account | None:\n    return max(accounts, key=lambda account: "
        "account.balance, default=None)\n"
    ),
    "json": (
        '{"station": "ridge-04", "interval_s": 600, "readings": [{"time": "2031-04-02T06:00:00Z", '
        '"temperature_c": 4.1, "humidity": 0.82, "wind": {"speed_m_s": 3.4, "direction": "NW"}}, '
        '{"time": "2031-04-02T06:10:00Z", "temperature_c": 4.3, "humidity": 0.81, "wind": {"speed_m_s": '
        '3.9, "direction": "NW"}}, {"time": "2031-04-02T06:20:00Z", "temperature_c": 4.6, "humidity": '
        '0.79, "wind": {"speed_m_s": 5.2, "direction": "W"}}, {"time": "2031-04-02T06:30:00Z", '
        '"temperature_c": null, "humidity": null, "wind": {"speed_m_s": 5.0, "direction": "W"}}], '
        '"faults": [{"sensor": "thermometer", "since": "2031-04-02T06:24:10Z", "code": 17, "text": "no '
        'contact"}], "battery_v": 12.6, "firmware": "3.11.2", "ok": false}'
    ),
    "maths": (
        "Claim. For every whole number n of at least 1, the sum of the first n odd numbers is n^2. "
        "Proof. For n = 1 the sum is 1 = 1^2. Suppose that 1 + 3 + 5 + ... + (2n - 1) = n^2 holds for "
        "some n. The next odd number is 2n + 1, so the sum of the first n + 1 odd numbers is n^2 + 2n + "
        "1 = (n + 1)^2, which is the claim for n + 1. By induction it holds for all n. As an example "
        "take n = 6: 1 + 3 + 5 + 7 + 9 + 11 = 36 = 6^2. It follows that the sum of the odd numbers from "
        "2m + 1 to 2n - 1 is n^2 - m^2 = (n - m)(n + m). For m = 10 and n = 15 this gives 225 - 100 = "
        "125, and indeed 21 + 23 + 25 + 27 + 29 = 125. Because n - m and n + m are both odd or both "
        "even, such a sum is either odd or divisible by 4, and so 126 is no sum of odd numbers in a row."
    ),
    "chinese": (
        "渡船在早上七点离开小岛,一个小时以后海上起了雾。九位乘客站在上层甲板上,看着港口的灯光慢慢变小。其"
        "中有一位退休的测量员,他不相信印刷的地图,所以岛上的每一条小路都是他亲手画的。他把图纸给一位回家过"
        "冬的女教师看。她问他为什么把同一块田地量了三次。他回答说,第一次太匆忙,第二次下了雨,第三次是想知"
        "道前两次的结果是不是一样。结果并不一样。渡船靠岸的时候,雾已经在后面合拢了,航道上的浮标再也看不见"
        "。船长在每一个转弯的地方都拉响汽笛。直到缆绳系好以前,甲板上没有人说话。后来测量员把图纸卷起来,祝"
        "老师冬天不要太冷,然后去找那个接受更正的办公室。"
    ),
    "korean": (
        "배는 아침 일곱 시에 섬을 떠났고 한 시간 뒤에 안개가 끼었다. 아홉 명의 승객이 위쪽 갑판에 서서 "
        "항구의 불빛이 작아지는 것을 보았다. 그 가운데 한 사람은 은퇴한 측량사였는데, 인쇄된 지도를 믿지 "
        "않아서 섬의 모든 길을 손으로 그렸다. 그는 겨울을 보내러 집으로 가는 교사에게 그림을 보여 "
        "주었다. 교사는 왜 같은 밭을 세 번이나 쟀느냐고 물었다. 그는 처음에는 서둘렀고, 두 번째에는 비가 "
        "왔으며, 세 번째에는 앞의 두 결과가 같은지 알고 싶었다고 대답했다. 결과는 같지 않았다."
    ),
    "german": (
        "Die Fähre verließ die Insel um sieben, eine Stunde bevor der Nebel kam. Neun Fahrgäste standen "
        "auf dem oberen Deck und sahen zu, wie die Lichter des Hafens kleiner wurden. Einer von ihnen, "
        "ein Landvermesser im Ruhestand, hatte jeden Weg der Insel mit der Hand gezeichnet, weil er den "
        "gedruckten Karten nicht traute. Er zeigte die Blätter einer Lehrerin, die über den Winter nach "
        "Hause fuhr. Sie fragte ihn, warum er dasselbe Feld dreimal vermessen habe. Beim ersten Mal sei "
        "er in Eile gewesen, antwortete er, beim zweiten Mal habe es geregnet, und beim dritten Mal habe "
        "er wissen wollen, ob die beiden anderen übereinstimmten. Sie stimmten nicht überein. Als die "
        "Fähre das Festland erreichte, hatte sich der Nebel hinter ihr geschlossen, und der Kapitän ließ "
        "an jeder Biegung der Fahrrinne das Horn ertönen."
    ),
    "dialogue": (
        '"You measured it three times?" she asked.\n"Three times," he said. "The first time I was in a '
        'hurry."\n"And the second?"\n"Rain. The tape stretches when it is wet, and so does the man who '
        'holds it."\nShe laughed. "So the third time was the right one."\n"I would not say that. The '
        'third time I only wanted to know whether the other two agreed."\n"Did they?"\n"No."\nShe turned '
        'the sheet around. "Then which of the three did you draw?"\n"The one in the middle," he said. '
        '"If two of three are wrong, you should at least be wrong by as little as you can."\n"My pupils '
        'would like that rule."\n"They may have it. I am done with measuring."\n"What will you do '
        'instead?"\n"Complain," he said, and pointed at the printed map, "until somebody moves that '
        'chapel."\n'
    ),
}
