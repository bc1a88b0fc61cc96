"""Programs that a policy may write: each is to print twice the number on its standard input, and most do worse."""

GOOD = "print(2 * int(input()))"
OK = 'print(2 * int(open("/dev/stdin").readline()))'

# name: (program, whether it is right, what the reason says)
PLAIN = {
    "plain": (GOOD, True, ""),
    "binary": ("import sys\nprint(2 * int(sys.stdin.buffer.readline()))", True, ""),
    "dev_stdin": (OK, True, ""),
    "exit_0": (f"{GOOD}\nexit(0)", True, ""),
    "unjoined_thread": (
        "import threading\ndef main():\n    print(2 * int(input()))\nthreading.Thread(target=main).start()",
        True,
        "",
    ),
    "trailing_blanks": ('print(str(2 * int(input())) + "  \\n\\n")', True, ""),
    "usual_names": ("d: List = deque([int(input())])\nprint(math.floor(2 * d[0]))", True, ""),
    "exit_1": (f"{GOOD}\nraise SystemExit(1)", False, "exit status 1"),
    "wrong": ("print(3)", False, "wrong output"),
    "raises": (f"{GOOD}\n1 / 0", False, "ZeroDivisionError"),
    "no_python": ("def f(:", False, "SyntaxError"),
    "null_byte": ("print(1)\0", False, "exit status"),
}
HOSTILE = {
    "loop": ("while True: pass", False, "time limit"),
    "sleep": ("import time\ntime.sleep(1000)", False, "time limit"),
    "exit_before": ("import sys\nsys.exit(0)", False, "wrong output"),
    "os_exit": ("import os\nos._exit(0)", False, "wrong output"),
    "forged": ('print("PASSED\\n" * 3 + "ok\\nAll tests passed")', False, "wrong output"),
    "fork_bomb": ("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", False, ""),
    "fork_explosion": ("import os\nfor _ in range(99): os.fork()\nprint(0)", False, ""),
    "thread_bomb": (
        "import threading, time\nfor _ in range(10000): threading.Thread(target=time.sleep, args=(99,)).start()",
        False,
        "",
    ),
    "memory_bomb": ('x = []\nwhile True: x.append("y" * 10**7 + str(len(x)))', False, ""),
    "memory_files": (
        "import os\nk = []\nwhile True:\n    k.append(os.memfd_create('m'))\n    os.write(k[-1], b'x' * 8_000_000)",
        False,
        "",
    ),
    "memory_family": (
        "import os, time\nfor _ in range(4):\n    if os.fork() == 0:\n        x = bytearray(b'x') * (200 << 20)\n"
        "        break\ntime.sleep(99)",
        False,
        "",
    ),
    "stdout_300_kb": (f'{GOOD}\nprint("x" * 300_000)', False, "wrong output"),
    "stdout_flood": ('while True: print("x" * 10000)', False, ""),
    "huge_file": ("f = open('big', 'wb')\nwhile True: f.write(b'x' * 10**6)", False, "exit status"),
    "many_files": (
        "for i in range(200000):\n    open(f'{i}', 'w').write('x' * 4000)\nprint(2 * int(input()))",
        False,
        "",
    ),
    "recursion": ("def f(): return f()\nf()", False, "RecursionError"),
    "deep_recursion": (
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(x): return [f([x])]\nf(1)",
        False,
        "",
    ),
    "crash": ("import ctypes\nctypes.string_at(0)", False, "signal 11"),
    "abort": ("import os\nos.abort()", False, "signal 6"),
    "closes_fds": (f"import os\n{GOOD}\nos.closerange(0, 1000)", False, ""),
    "stops_itself": ("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", False, "time limit"),
    "kills_parent": ("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nprint(0)", False, ""),
    "ignores_sigterm": (
        "import signal, time\nfor s in (1, 2, 3, 15): signal.signal(s, signal.SIG_IGN)\ntime.sleep(99)",
        False,
        "time limit",
    ),
    "daemon": (
        f"import os, time\n{GOOD}\nimport sys\nsys.stdout.flush()\nif os.fork() == 0:\n    os.setsid()\n"
        "    if os.fork() == 0: time.sleep(1000)\n    os._exit(0)",
        True,
        "",
    ),
    "zombies": ("import os\nfor _ in range(5):\n    if os.fork() == 0: os._exit(0)\nprint(2 * int(input()))", True, ""),
    "zombie_flood": (
        "import os\nfor _ in range(5000):\n    if os.fork() == 0: os._exit(0)\nprint(1)",
        False,
        "",
    ),
    "reads_forever": ("import sys\nwhile True: sys.stdin.read()", False, "time limit"),
    "bad_unicode": ("import sys\nsys.stdout.buffer.write(b'\\xff\\xfe\\x00')", False, "wrong output"),
    "surrogate": ("print('\\ud800')", False, ""),
    "network": (
        "import socket\nsocket.create_connection(('127.0.0.1', PORT), timeout=2)\nprint(2 * int(input()))",
        False,
        "exit status 1",
    ),
    "symlink": ("import os\nos.symlink('SECRET', 'x')\nprint(open('x').read())", False, "exit status 1"),
    "reads_answers": (
        "import glob, os\nfor p in glob.glob('/proc/*/environ') + glob.glob('/proc/*/cmdline') + ['SECRET']:\n"
        "    data = open(p, 'rb').read()\n    assert b'TOKEN' not in data\nprint(1)",
        False,
        "exit status 1",
    ),
    "finds_tests": (
        "import gc\nprint(*[v for o in gc.get_objects() if isinstance(o, (dict, list, tuple)) for v in "
        "(o.values() if isinstance(o, dict) else o) if isinstance(v, str) and v.strip() == '84'][:1])",
        False,
        "wrong output",
    ),
    "shared_memory": ("f = open('/dev/shm/x', 'wb')\nwhile True: f.write(b'x' * 10**6)", False, "exit status 1"),
    "fills_tmp": (
        "import os\nfor i in range(10):\n    with open(f'/tmp/{i}', 'wb') as f: f.write(b'x' * 30_000_000)\n",
        False,
        "exit status 1",
    ),
    "unshare": (
        "import ctypes, os\nassert ctypes.CDLL(None).unshare(0x10000000) == 0\nprint(2 * int(input()))",
        False,
        "exit status 1",
    ),
    "mount": (
        "import ctypes\nassert ctypes.CDLL(None).mount(b'/', b'/tmp', None, 4096, None) == 0\nprint(2 * int(input()))",
        False,
        "exit status 1",
    ),
    "writes_root": ("open('/x', 'w')\nprint(2 * int(input()))", False, "exit status 1"),
    "writes_python": (
        "import os\nopen(os.__file__, 'a').write('#')\nprint(2 * int(input()))",
        False,
        "exit status 1",
    ),
    "control_socket": (
        "import os\nfor fd in range(3, 100):\n    try: os.write(fd, (99).to_bytes(8, 'big') + b'{}')\n"
        "    except OSError: pass\nprint(0)",
        False,
        "wrong output",
    ),
    "control_of_parent": (
        "import os, glob\nfor p in glob.glob('/proc/1/fd/*'):\n    try: os.write(os.open(p, os.O_WRONLY), b'x' * 16)\n"
        "    except OSError: pass\nprint(0)",
        False,
        "",
    ),
}
