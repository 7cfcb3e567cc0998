"""Numbers as they are."""

from dataclasses import dataclass

from tardigrad.links.codec import Codec, Encoded, SliceOf, Values


@dataclass(frozen=True)
class Identity(Codec):
    """C(p) = p: every number crosses as it is. There is no error, and nothing to feed back."""

    def encode(self, values: Values, of: SliceOf) -> Encoded:
        return (values,)

    def decode(self, encoded: Encoded, length: int) -> Values:
        (values,) = encoded
        return values

    def encoded_bytes(self, length: int, number_bytes: int) -> int:
        return length * number_bytes


AS_THEY_ARE = Identity()


def that_codes(codec: Codec | None) -> tuple[Codec, ...]:
    """The codec, unless it leaves numbers as they are: none is older than codecs."""
    return () if codec is None or isinstance(codec, Identity) else (codec,)
