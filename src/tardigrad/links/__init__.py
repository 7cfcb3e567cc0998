"""What crosses the wire, in which form, and how many bytes; one link a file, one codec a file."""

from tardigrad.links.bandwidth import BandwidthAware
from tardigrad.links.budget import Budget
from tardigrad.links.codec import Codec, Encoded, Sent, SliceOf, decode, encoded_bytes, send
from tardigrad.links.every import Every
from tardigrad.links.full import Full
from tardigrad.links.identity import Identity, that_codes
from tardigrad.links.int8 import Int8
from tardigrad.links.link import UNSENT, Gate, Link
from tardigrad.links.random_k import RandomK
from tardigrad.links.sign import Sign
from tardigrad.links.top_k import TopK

LINKS: dict[str, type[Link]] = {
    "full": Full,
    "every": Every,
    "bandwidth_aware": BandwidthAware,
    "budget": Budget,
}

CODECS: dict[str, type[Codec]] = {
    "identity": Identity,
    "top_k": TopK,
    "random_k": RandomK,
    "sign": Sign,
    "int8": Int8,
}

__all__ = [
    "CODECS",
    "LINKS",
    "UNSENT",
    "BandwidthAware",
    "Budget",
    "Codec",
    "Encoded",
    "Every",
    "Full",
    "Gate",
    "Identity",
    "Int8",
    "Link",
    "RandomK",
    "Sent",
    "Sign",
    "SliceOf",
    "TopK",
    "decode",
    "encoded_bytes",
    "send",
    "that_codes",
]
