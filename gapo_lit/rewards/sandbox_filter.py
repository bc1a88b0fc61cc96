"""A seccomp filter for programs in namespaces: they can make no namespace of their own, where they would be root.

Classic BPF over `struct seccomp_data` (man 2 seccomp), which bwrap installs as it starts the program. bwrap's own
--disable-userns does the same where it starts from a user namespace, which it does not where root makes the mounts.
"""

from __future__ import annotations

import os
import platform
import struct
from typing import BinaryIO

_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets; the low half of an argument comes first
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _NOT_PERMITTED, _NOT_THERE = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026  # EPERM, ENOSYS
_NEW_USER = 0x10000000  # CLONE_NEWUSER
_X32 = 0x40000000  # numbers of another table on x86-64
# (audit architecture, unshare, setns, clone, clone3) by machine
_CALLS = {"x86_64": (0xC000003E, 272, 308, 56, 435), "aarch64": (0xC00000B7, 97, 268, 220, 435)}


def filter_file() -> BinaryIO | None:
    """The filter as an open file for bwrap's --seccomp; None on machines whose system calls are not listed here."""
    program = filter_program(platform.machine())
    if program is None:
        return None
    file = os.fdopen(os.memfd_create("seccomp"), "w+b")
    file.write(program)
    file.seek(0)
    return file


def filter_program(machine: str) -> bytes | None:
    """The instructions. clone3 is said not to exist, as a filter cannot see its flags; C libraries then use clone."""
    if machine not in _CALLS:
        return None
    architecture, unshare, setns, clone, clone3 = _CALLS[machine]
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 7, 0, _X32),
        (_EQUAL, 6, 0, unshare),
        (_EQUAL, 5, 0, setns),
        (_EQUAL, 5, 0, clone3),
        (_EQUAL, 0, 2, clone),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_ANY_BIT, 1, 0, _NEW_USER),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _NOT_PERMITTED),
        (_RETURN, 0, 0, _NOT_THERE),
    ]
    return b"".join(struct.pack("HBBI", *step) for step in steps)
