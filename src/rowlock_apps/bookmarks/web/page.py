"""What a fetched link gave."""

from __future__ import annotations

from dataclasses import dataclass

from .head import Head


@dataclass(frozen=True, slots=True)
class Page:
    """A page, as far as it is kept."""

    final_url: str
    content_type: str
    head: Head
