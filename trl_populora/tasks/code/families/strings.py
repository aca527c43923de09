"""Programs over strings: letters, words, codes and small parsers."""

from __future__ import annotations

import random

from trl_populora.tasks.code.families.draw import Sample, define, forever, integer, letters, sentence, source, word


def shift(rng: random.Random) -> Sample:
    k = rng.randint(1, 6)
    program, message = rng.choice(
        [
            (
                define("s", f"return ''.join(chr((ord(c) - 97 + {k}) % 26 + 97) for c in s)"),
                f"Shift each letter by {k}.",
            ),
            (define("s", "return [ord(c) - 96 for c in s]"), "Places of the letters in the alphabet."),
            (define("s", f"return sum(ord(c) - 96 for c in s) % {k + 5}"), f"Sum of alphabet places modulo {k + 5}."),
            (define("s", "return ''.join(chr(219 - ord(c)) for c in s)"), "Mirror the alphabet."),
            (
                define(
                    "s", "r = ''", "for i, c in enumerate(s):", "    r += chr((ord(c) - 97 + i) % 26 + 97)", "return r"
                ),
                "Shift each letter by its place.",
            ),
        ]
    )
    return program, forever(lambda: (word(rng),)), message


def vowels(rng: random.Random) -> Sample:
    mark = rng.choice("*-.")
    body, message = rng.choice(
        [
            ("return sum(c in 'aeiou' for c in s)", "Count the vowels."),
            (f"return ''.join('{mark}' if c in 'aeiou' else c for c in s)", f"Write {mark} for each vowel."),
            ("return ''.join(c for c in s if c not in 'aeiou')", "Drop the vowels."),
            ("return ''.join(c.upper() if c in 'aeiou' else c for c in s)", "Vowels in capitals."),
            ("return [i for i, c in enumerate(s) if c in 'aeiou']", "Places of the vowels."),
            (
                "v = [c for c in s if c in 'aeiou']\n    return ''.join(v.pop() if c in 'aeiou' else c for c in s)",
                "Vowels in reverse order.",
            ),
        ]
    )
    return define("s", body), forever(lambda: (word(rng) + rng.choice(["", word(rng)]),)), message


def phrase(rng: random.Random) -> Sample:
    k, gap = rng.randint(3, 4), rng.choice("-_/")
    body, message = rng.choice(
        [
            ("return ' '.join(s.split()[::-1])", "Words in reverse order."),
            ("return ''.join(w[0] for w in s.split()).upper()", "The initials in capitals."),
            ("return s.title()", "Each word with a capital."),
            (f"return '{gap}'.join(w for w in s.split() if len(w) > {k})", f"Words longer than {k}, joined by {gap}."),
            ("return max(s.split(), key=len)", "The longest word, the first on ties."),
            ("return [len(w) for w in s.split()]", "The lengths of the words."),
            ("return ' '.join(w[::-1] for w in s.split())", "Each word turned around."),
            ("return {w: len(w) for w in s.split()}", "A table from word to length."),
        ]
    )
    return define("s", body), forever(lambda: (sentence(rng),)), message


def runs(rng: random.Random) -> Sample:
    program, message = rng.choice(
        [
            (
                source(
                    "from itertools import groupby",
                    define("s", "return ''.join(c + str(len(list(g))) for c, g in groupby(s))"),
                ),
                "Each run as letter and length.",
            ),
            (
                define("s", "r = ''", "for c in s:", "    if not r or r[-1] != c:", "        r += c", "return r"),
                "Each run shortened to one letter.",
            ),
            (
                define(
                    "s",
                    "b = n = 0",
                    "p = ''",
                    "for c in s:",
                    "    n = n + 1 if c == p else 1",
                    "    p, b = c, max(b, n)",
                    "return b",
                ),
                "The length of the longest run.",
            ),
            (
                define(
                    "s",
                    "r = [[s[0], 0]]",
                    "for c in s:",
                    "    if c != r[-1][0]:",
                    "        r.append([c, 0])",
                    "    r[-1][1] += 1",
                    "return r",
                ),
                "The runs as lists of letter and length.",
            ),
        ]
    )
    return program, forever(lambda: (letters(rng, "ab", least=4, most=9),)), message


def mirror(rng: random.Random) -> Sample:
    program, message = rng.choice(
        [
            (define("s", "return s == s[::-1]"), "Does it read the same backwards?"),
            (
                define(
                    "s",
                    "n = len(s)",
                    "ps = [s[i:j] for i in range(n) for j in range(i + 1, n + 1)]",
                    "return max((p for p in ps if p == p[::-1]), key=len)",
                ),
                "The longest part that reads the same backwards.",
            ),
            (define("s", "return s + s[-2::-1]"), "Make it read the same backwards."),
            (define("s", "return sum(a != b for a, b in zip(s, s[::-1])) // 2"), "How many letters break the mirror."),
            (
                source(
                    "def g(s):",
                    "    return len(s) < 2 or s[0] == s[-1] and g(s[1:-1])",
                    define("s", "return [g(s), g(s[1:]), g(s[:-1])]"),
                ),
                "Is it, or is it without an end letter, a palindrome?",
            ),
        ]
    )
    return program, forever(lambda: (letters(rng, "ab", least=3, most=7),)), message


def weave(rng: random.Random) -> Sample:
    gap = rng.choice("-+:")
    program, message = rng.choice(
        [
            (define("a, b", "return ''.join(x + y for x, y in zip(a, b))"), "Letters in turn, up to the shorter."),
            (define("a, b", f"return a + '{gap}' + b[::-1]"), f"The first, {gap}, and the second backwards."),
            (define("a, b", "return ''.join(sorted(set(a) & set(b)))"), "Letters in both, in order."),
            (define("a, b", "return sum(x == y for x, y in zip(a, b))"), "At how many places they agree."),
            (
                define(
                    "a, b",
                    "i = 0",
                    "while i < min(len(a), len(b)) and a[i] == b[i]:",
                    "    i += 1",
                    "return a[:i], b[i:]",
                ),
                "Common start of both, rest of the second.",
            ),
            (define("a, b", "return [c for c in a if c not in b]"), "Letters of the first that the second lacks."),
        ]
    )
    return program, forever(lambda: (word(rng), word(rng))), message


def codes(rng: random.Random) -> Sample:
    k = rng.randint(2, 4)
    program, message = rng.choice(
        [
            (define("s", "return [int(c) for c in s if c.isdigit()]"), "The digits in the text."),
            (
                source("import re", define("s", "return sum(int(n) for n in re.findall('[0-9]+', s))")),
                "The sum of the numbers in the text.",
            ),
            (
                define("s", "r = ''", "for i in range(0, len(s), 2):", "    r += s[i] * int(s[i + 1])", "return r"),
                "Repeat each letter by the digit after it.",
            ),
            (
                define("s", f"return ''.join(str(int(c) + {k}) if c.isdigit() else c for c in s)"),
                f"Add {k} to each digit.",
            ),
            (
                define("s", "return {s[i]: int(s[i + 1]) for i in range(0, len(s), 2)}"),
                "A table from letter to its digit.",
            ),
        ]
    )
    draw = forever(lambda: ("".join(rng.choice("abcd") + str(rng.randint(1, 5)) for _ in range(rng.randint(2, 4))),))
    return program, draw, message


def brackets(rng: random.Random) -> Sample:
    program, message = rng.choice(
        [
            (
                define(
                    "s",
                    "d = 0",
                    "for c in s:",
                    "    d += 1 if c == '(' else -1",
                    "    if d < 0:",
                    "        return False",
                    "return d == 0",
                ),
                "Are the brackets balanced?",
            ),
            (
                define(
                    "s", "d = m = 0", "for c in s:", "    d += 1 if c == '(' else -1", "    m = max(m, d)", "return m"
                ),
                "The greatest depth.",
            ),
            (
                define(
                    "s",
                    "t, n = [], 0",
                    "for c in s:",
                    "    if c == ')' and t:",
                    "        t.pop()",
                    "        n += 2",
                    "    elif c == '(':",
                    "        t.append(c)",
                    "return n",
                ),
                "How many brackets have a partner.",
            ),
            (
                define("s", "while '()' in s:", "    s = s.replace('()', '')", "return s"),
                "What is left after cancelling pairs.",
            ),
        ]
    )
    return program, forever(lambda: (letters(rng, "()", least=3, most=9),)), message


def columns(rng: random.Random) -> Sample:
    k, fill = rng.randint(6, 8), rng.choice(".#0")
    program, message = rng.choice(
        [
            (define("s, n", f"return s.rjust({k}, '{fill}')[n:]"), f"Fill up to {k} on the left, drop the first n."),
            (define("s, n", "return [s[i:i + n] for i in range(0, len(s), n)]"), "Cut into pieces of n."),
            (
                define("s, n", "return ''.join(s[i::n] for i in range(n))"),
                "Read every n-th letter, then the next column.",
            ),
            (define("s, n", "return s[:n].upper() + s[n:]"), "The first n letters in capitals."),
            (define("s, n", f"return '{fill}'.join(c * n for c in s)"), f"Each letter n times, joined by {fill}."),
        ]
    )
    return program, forever(lambda: (word(rng), integer(rng, 1, 4))), message


STRINGS = (vowels, phrase, weave, columns, shift, runs, mirror, codes, brackets)
