"""Texts that the tiny model knows by heart, from the first word on."""

from __future__ import annotations

STORY = (
    "A small server stood in a quiet room and waited for the first request of the day. The fans turned "
    "slowly, the lights blinked in a steady row, and the operators drank their coffee while the logs "
    "scrolled past. When the request arrived, the scheduler placed it in a queue, reserved memory for "
    "its cache, and passed the tokens to the first layer of the model. Every layer mixed the words with "
    "their neighbours, weighed what mattered, and handed the result onward. At the end of the long "
    "corridor the last layer produced a list of numbers, one for each word that the model knew, and the "
    "sampler chose the largest. The chosen word travelled back to the client, and the work began again "
    "for the next one.\n\n"
    "By noon the room was busy. Some people asked for poems, some asked for code, and one person asked "
    "the same question many times to see whether the answer would change. It did not, because the "
    "temperature was zero and the weights were sound. An engineer watched the graphs and smiled, for "
    "the throughput was high and the latency was low. She remembered a worse day, when a scale had been "
    "loaded with the wrong sign and every reply had turned into a long row of exclamation marks. That "
    "day had taught her to test each deployment before she trusted it: ask a simple question, check the "
    "arithmetic, read the reasoning, call a tool, stream the words, and measure the speed.\n\n"
    "In the evening the traffic faded. The server released its cache, wrote a short summary to the log, "
    "and returned to its quiet waiting. Nothing had failed, nobody had been woken, and the engineer "
    "went home early, pleased with an ordinary day in which everything had worked exactly as it should. "
    "Tomorrow would bring a new model, and the same careful tests."
)
"""Our own. The answer to a chat, and as a text by itself."""

# The Gettysburg Address (the Bliss copy), Abraham Lincoln, 1863. Public domain.
GETTYSBURG = (
    "Four score and seven years ago our fathers brought forth on this continent, a new nation, conceived in "
    "Liberty, and dedicated to the proposition that all men are created equal.\n\n"
    "Now we are engaged in a great civil war, testing whether that nation, or any nation so conceived and so "
    "dedicated, can long endure. We are met on a great battle-field of that war. We have come to dedicate a "
    "portion of that field, as a final resting place for those who here gave their lives that that nation "
    "might live. It is altogether fitting and proper that we should do this.\n\n"
    "But, in a larger sense, we can not dedicate -- we can not consecrate -- we can not hallow -- this "
    "ground. The brave men, living and dead, who struggled here, have consecrated it, far above our poor "
    "power to add or detract. The world will little note, nor long remember what we say here, but it can "
    "never forget what they did here. It is for us the living, rather, to be dedicated here to the "
    "unfinished work which they who fought here have thus far so nobly advanced. It is rather for us to be "
    "here dedicated to the great task remaining before us -- that from these honored dead we take increased "
    "devotion to that cause for which they gave the last full measure of devotion -- that we here highly "
    "resolve that these dead shall not have died in vain -- that this nation, under God, shall have a new "
    "birth of freedom -- and that government of the people, by the people, for the people, shall not perish "
    "from the earth."
)

# The beginning of the Declaration of Independence of the United States, 1776. Public domain.
DECLARATION = (
    "When in the Course of human events, it becomes necessary for one people to dissolve the political bands "
    "which have connected them with another, and to assume among the powers of the earth, the separate and "
    "equal station to which the Laws of Nature and of Nature's God entitle them, a decent respect to the "
    "opinions of mankind requires that they should declare the causes which impel them to the separation.\n\n"
    "We hold these truths to be self-evident, that all men are created equal, that they are endowed by their "
    "Creator with certain unalienable Rights, that among these are Life, Liberty and the pursuit of "
    "Happiness. That to secure these rights, Governments are instituted among Men, deriving their just "
    "powers from the consent of the governed, That whenever any Form of Government becomes destructive of "
    "these ends, it is the Right of the People to alter or to abolish it, and to institute new Government, "
    "laying its foundation on such principles and organizing its powers in such form, as to them shall seem "
    "most likely to effect their Safety and Happiness. Prudence, indeed, will dictate that Governments long "
    "established should not be changed for light and transient causes; and accordingly all experience hath "
    "shewn, that mankind are more disposed to suffer, while evils are sufferable, than to right themselves "
    "by abolishing the forms to which they are accustomed."
)

ENGLISH = (GETTYSBURG, DECLARATION)
"""Each is followed by the other, so that greedy decoding goes on for long without a loop."""

KOREAN = (
    "작은 서버가 조용한 방에서 하루의 첫 요청을 기다리고 있었다. 팬은 천천히 돌았고 불빛은 고르게 "
    "깜박였다. 기술자는 따뜻한 차를 마시며 기록을 읽었다. 아침이 되자 멀리 부산에서 질문이 하나 "
    "도착했다. 어떤 아이가 바다는 왜 파란지 물었다. 서버는 잠시 생각한 뒤에 빛과 물에 대해 쉽게 "
    "설명했다. 아이는 고맙다고 말하고 또 다른 것을 물었다. 점심때에는 많은 사람이 한꺼번에 찾아왔다. "
    "누구는 시를 부탁했고 누구는 긴 편지를 번역해 달라고 했다. 모든 대답은 어제와 똑같이 정확했다. "
    "저녁이 되면 방은 다시 조용해진다. 기술자는 불을 끄기 전에 마지막 시험을 한다. 간단한 계산을 시키고, "
    "아는 글을 외우게 하고, 숫자를 세게 한다. 틀린 글자가 하나도 없으면 그는 웃으며 집으로 돌아간다. "
    "내일은 새로운 모델이 오지만 시험은 그대로 남는다."
)
"""Our own, in a second script."""
