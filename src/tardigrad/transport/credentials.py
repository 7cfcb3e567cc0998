"""Who is at the other end of a Unix socket, as the kernel says."""

import os
import socket
import struct

CREDENTIALS = struct.Struct("3i")


def check_same_user(peer: socket.socket) -> None:
    said = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    _, user, _ = CREDENTIALS.unpack(said)
    if user != os.getuid():
        raise PermissionError(f"a process of user {user} at the socket of user {os.getuid()}")
