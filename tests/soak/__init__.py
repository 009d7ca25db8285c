"""Attacks that anyone can run for as long as they like: `make soak MINUTES=30`.

Each attack is one attempt from one seed; what it finds is printed with that seed, made as small as it can be, and
repeated by `python -m tests.soak --attack NAME --seed N`. The test suite makes a few attempts of each kind.
"""
