"""Worst-case accuracy inside other people's frameworks: one file for each, imported by its name.

Each needs its framework, which comes with the extra of the same name. ``import upright`` imports
none of them, and nothing in this package does.
"""

__all__: list[str] = []
