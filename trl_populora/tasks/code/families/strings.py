"""Programs over strings: letters, words, codes and small parsers."""

from __future__ import annotations

import random

from trl_populora.tasks.code.families.draw import Sample, integer, letters, one_of, sentence, word


def shift(rng: random.Random) -> Sample:
    k = rng.randint(1, 6)
    forms = f"""
        return ''.join(chr((ord(c) - 97 + {k}) % 26 + 97) for c in s)  # Shift each letter by {k}.
        return [ord(c) - 96 for c in s]  # Places of the letters in the alphabet.
        return sum(ord(c) - 96 for c in s) % {k + 5}  # Sum of alphabet places modulo {k + 5}.
        return ''.join(chr(219 - ord(c)) for c in s)  # Mirror the alphabet.
        r = ''
        for i, c in enumerate(s):
            r += chr((ord(c) - 97 + i) % 26 + 97)
        return r  # Shift each letter by its place.
    """
    return one_of(rng, "s", forms, lambda: (word(rng),))


def vowels(rng: random.Random) -> Sample:
    mark = rng.choice("*-.")
    forms = f"""
        return sum(c in 'aeiou' for c in s)  # Count the vowels.
        return ''.join('{mark}' if c in 'aeiou' else c for c in s)  # Write {mark} for each vowel.
        return ''.join(c for c in s if c not in 'aeiou')  # Drop the vowels.
        return ''.join(c.upper() if c in 'aeiou' else c for c in s)  # Vowels in capitals.
        return [i for i, c in enumerate(s) if c in 'aeiou']  # Places of the vowels.
        v = [c for c in s if c in 'aeiou']
        return ''.join(v.pop() if c in 'aeiou' else c for c in s)  # Vowels in reverse order.
    """
    return one_of(rng, "s", forms, lambda: (word(rng) + rng.choice(["", word(rng)]),))


def phrase(rng: random.Random) -> Sample:
    k, gap = rng.randint(3, 4), rng.choice("-_/")
    forms = f"""
        return ' '.join(s.split()[::-1])  # Words in reverse order.
        return ''.join(w[0] for w in s.split()).upper()  # The initials in capitals.
        return s.title()  # Each word with a capital.
        return '{gap}'.join(w for w in s.split() if len(w) > {k})  # Words longer than {k}, joined by {gap}.
        return max(s.split(), key=len)  # The longest word, the first on ties.
        return [len(w) for w in s.split()]  # The lengths of the words.
        return ' '.join(w[::-1] for w in s.split())  # Each word turned around.
        return {{w: len(w) for w in s.split()}}  # A table from word to length.
    """
    return one_of(rng, "s", forms, lambda: (sentence(rng),))


def runs(rng: random.Random) -> Sample:
    forms = """
        from itertools import groupby
        def f(s):
            return ''.join(c + str(len(list(g))) for c, g in groupby(s))  # Each run as letter and length.
        r = ''
        for c in s:
            if not r or r[-1] != c:
                r += c
        return r  # Each run shortened to one letter.
        b = n = 0
        p = ''
        for c in s:
            n = n + 1 if c == p else 1
            p, b = c, max(b, n)
        return b  # The length of the longest run.
        r = [[s[0], 0]]
        for c in s:
            if c != r[-1][0]:
                r.append([c, 0])
            r[-1][1] += 1
        return r  # The runs as lists of letter and length.
    """
    return one_of(rng, "s", forms, lambda: (letters(rng, "ab", least=4, most=9),))


def mirror(rng: random.Random) -> Sample:
    forms = """
        return s == s[::-1]  # Does it read the same backwards?
        n = len(s)
        ps = [s[i:j] for i in range(n) for j in range(i + 1, n + 1)]
        return max((p for p in ps if p == p[::-1]), key=len)  # The longest part that reads the same backwards.
        return s + s[-2::-1]  # Make it read the same backwards.
        return sum(a != b for a, b in zip(s, s[::-1])) // 2  # How many letters break the mirror.
        def g(s):
            return len(s) < 2 or s[0] == s[-1] and g(s[1:-1])
        def f(s):
            return [g(s), g(s[1:]), g(s[:-1])]  # Is it, or is it without an end letter, a palindrome?
    """
    return one_of(rng, "s", forms, lambda: (letters(rng, "ab", least=3, most=7),))


def weave(rng: random.Random) -> Sample:
    gap = rng.choice("-+:")
    forms = f"""
        return ''.join(x + y for x, y in zip(a, b))  # Letters in turn, up to the shorter.
        return a + '{gap}' + b[::-1]  # The first, {gap}, and the second backwards.
        return ''.join(sorted(set(a) & set(b)))  # Letters in both, in order.
        return sum(x == y for x, y in zip(a, b))  # At how many places they agree.
        i = 0
        while i < min(len(a), len(b)) and a[i] == b[i]:
            i += 1
        return a[:i], b[i:]  # Common start of both, rest of the second.
        return [c for c in a if c not in b]  # Letters of the first that the second lacks.
    """
    return one_of(rng, "a, b", forms, lambda: (word(rng), word(rng)))


def codes(rng: random.Random) -> Sample:
    k = rng.randint(2, 4)
    forms = f"""
        return [int(c) for c in s if c.isdigit()]  # The digits in the text.
        import re
        def f(s):
            return sum(int(n) for n in re.findall('[0-9]+', s))  # The sum of the numbers in the text.
        r = ''
        for i in range(0, len(s), 2):
            r += s[i] * int(s[i + 1])
        return r  # Repeat each letter by the digit after it.
        return ''.join(str(int(c) + {k}) if c.isdigit() else c for c in s)  # Add {k} to each digit.
        return {{s[i]: int(s[i + 1]) for i in range(0, len(s), 2)}}  # A table from letter to its digit.
    """

    def draw() -> tuple:
        return ("".join(rng.choice("abcd") + str(rng.randint(1, 5)) for _ in range(rng.randint(2, 4))),)

    return one_of(rng, "s", forms, draw)


def brackets(rng: random.Random) -> Sample:
    forms = """
        d = 0
        for c in s:
            d += 1 if c == '(' else -1
            if d < 0:
                return False
        return d == 0  # Are the brackets balanced?
        d = m = 0
        for c in s:
            d += 1 if c == '(' else -1
            m = max(m, d)
        return m  # The greatest depth.
        t, n = [], 0
        for c in s:
            if c == ')' and t:
                t.pop()
                n += 2
            elif c == '(':
                t.append(c)
        return n  # How many brackets have a partner.
        while '()' in s:
            s = s.replace('()', '')
        return s  # What is left after cancelling pairs.
    """
    return one_of(rng, "s", forms, lambda: (letters(rng, "()", least=3, most=9),))


def columns(rng: random.Random) -> Sample:
    k, fill = rng.randint(6, 8), rng.choice(".#0")
    forms = f"""
        return s.rjust({k}, '{fill}')[n:]  # Fill up to {k} on the left, drop the first n.
        return [s[i:i + n] for i in range(0, len(s), n)]  # Cut into pieces of n.
        return ''.join(s[i::n] for i in range(n))  # Read every n-th letter, then the next column.
        return s[:n].upper() + s[n:]  # The first n letters in capitals.
        return '{fill}'.join(c * n for c in s)  # Each letter n times, joined by {fill}.
    """
    return one_of(rng, "s, n", forms, lambda: (word(rng), integer(rng, 1, 4)))


STRINGS = (vowels, phrase, weave, columns, shift, runs, mirror, codes, brackets)
