"""The printable characters that byte-level BPE writes for bytes (GPT-2, section 2.2)."""

from __future__ import annotations

_PRINTABLE = (*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = tuple(byte for byte in range(256) if byte not in _PRINTABLE)
_BYTES = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(256 + place): byte for place, byte in enumerate(_OTHERS)
}

CHARACTERS = "".join(_BYTES)
"""One character for each byte."""


def to_bytes(token: str) -> bytes:
    """The bytes that a token of a vocabulary file stands for.

    A character that stands for no byte, as in later added tokens, stands for itself.
    """
    if all(c in _BYTES for c in token):
        return bytes(_BYTES[c] for c in token)
    return token.encode()
