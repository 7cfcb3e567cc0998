"""Bytes between processes: frames over sockets, and memory that processes of one machine share."""
