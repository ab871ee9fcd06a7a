"""Streams of requests in a child process that the system holds to a limit: nobody dies, and nobody is refused late.

The limit is a memory cgroup where this process may make one, and the engine finds it by itself; the same stream runs
under RLIMIT_AS with a budget that is told to it.
"""
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support import limited

MIB = 1 << 20
START = 1 << 30              # of a group, until the child has loaded everything and sets its own limit
BUDGET = 24 * MIB            # what the child leaves itself for requests: about 750 tokens of the model below

# argv: model, budget, file that takes the group's limit ("": there is none), seed. Prints what it saw as JSON.
STREAM = """
    import json, logging, os, random, resource, sys, threading
    import pantheon
    from pantheon._core.memory import memwatch
    from pantheon._core.memory.host import host_memory

    budget = int(sys.argv[2])
    logging.getLogger("pantheon").setLevel(logging.ERROR)
    threading.stack_size(1 << 20)                                   # of address space
    rng = random.Random(int(sys.argv[4]))
    model = pantheon.load(sys.argv[1], threads=1)
    greedy = lambda: pantheon.SamplingParams(temperature=0, logit_bias={2: float("-inf")})      # no early end
    list(model.generate([5] * 300, greedy(), max_tokens=2))         # whatever is made once is made now
    memwatch.trim()
    if sys.argv[3]:
        host = host_memory()
        limit = (host["cgroup_used"] + budget) // 4096 * 4096
        with open(sys.argv[3], "w") as file:
            file.write(str(limit))
        memwatch.sample()
        host = host_memory()
        seen = {"limit": limit, "cgroup_limit": host["cgroup_limit"], "cgroup": host["cgroup"],
                "total": memwatch.read()["host_total"], "told": memwatch.limit()}
        assert abs(memwatch.read()["host_avail"] - budget) < 2 << 20, (memwatch.read(), host)
    else:
        limit = host_memory()["anonymous"] + budget
        memwatch.configure(limit=limit)
        size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + budget + (8 << 20),) * 2)
        seen = {"limit": limit, "total": memwatch.read()["host_total"], "told": memwatch.limit()}
    prefill, forwards = model.prefill, []
    seen["peak"] = 0

    def counted(tokens, state):
        forwards.append(len(tokens))
        logits = prefill(tokens, state)
        seen["peak"] = max(seen["peak"], host_memory()["anonymous"])
        return logits

    model.prefill = counted
    counts = {"FIT": 0, "CAPPED": 0, "DENIED": 0}
    longest = 0
    for i in range(200):
        n = rng.choice([rng.randint(1, 60), rng.randint(60, 200), rng.randint(300, 1500), rng.randint(3000, 8000)])
        wanted = rng.randint(1, 20) if i % 6 else rng.randint(1000, 8000)
        before = len(forwards)
        try:
            chunks = model.generate([rng.randint(3, 250) for _ in range(n)], greedy(), max_tokens=wanted)
        except pantheon.AdmissionError as e:
            assert e.verdict.status == "DENIED" and len(forwards) == before
            assert memwatch.read()["host_reserved"] == 0 and model.open_states() == []
            counts["DENIED"] += 1
            continue
        counts[chunks.verdict.status] += 1
        longest = max(longest, n)
        produced = sum(1 for _ in chunks)           # to its end: what was promised is used
        assert produced == (wanted if chunks.verdict.status == "FIT" else max(1, chunks.verdict.fit_tokens - n))
        seen["peak"] = max(seen["peak"], host_memory()["anonymous"])
        assert sum(forwards[before:]) == n
        assert memwatch.read()["host_reserved"] == 0

    # Two at once: the second would take more than the first leaves, with a q8_0 cache too. It is refused, or its answer
    # is capped, or it waits; the first finishes.
    most = model.admit(8000).fit_tokens
    n = most * 95 // 100
    first = model.generate([7] * n, greedy(), max_tokens=8)
    next(first)
    before = len(forwards)
    try:
        model.generate([8] * n, greedy(), max_tokens=2)
        seen["second"] = "taken"
    except pantheon.AdmissionError:
        seen["second"] = "refused"
    assert len(forwards) == before
    capped = model.generate([8] * 4, greedy(), max_tokens=n)
    seen["small"] = capped.verdict.status
    capped.close()
    waited = []
    thread = threading.Thread(target=lambda: waited.extend(
        model.generate([8] * n, greedy(), max_tokens=2, timeout=60)))
    thread.start()
    seen["first"] = sum(1 for _ in first)
    thread.join()
    seen["waited"] = len(waited)
    assert memwatch.read()["host_reserved"] == 0 and model.open_states() == []
    print(json.dumps({**seen, "counts": counts, "longest": longest}))
"""

# The longest request of that stream, without admission. argv: model, budget, file that takes the group's limit.
UNCHECKED = """
    import sys
    import pantheon
    from pantheon._core.memory.host import host_memory
    model = pantheon.load(sys.argv[1], threads=1)
    greedy = pantheon.SamplingParams(temperature=0)
    list(model.generate([5] * 300, greedy, max_tokens=2))
    with open(sys.argv[3], "w") as file:
        file.write(str((host_memory()["cgroup_used"] + int(sys.argv[2])) // 4096 * 4096))
    print("begun", flush=True)
    list(model.generate([5] * 8000, greedy, max_tokens=2))
    print("done", flush=True)
"""


def child(group, code, *arguments, **environment):
    """The code's result, run inside the group; without one just run."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PANTHEON_MEM")}
    start = [sys.executable] if group is None else [sys.executable, limited.__file__, str(group.join)]
    return subprocess.run([*start, "-c", textwrap.dedent(code), *map(str, arguments)], capture_output=True, text=True,
                          timeout=600, env={**clean, **environment})


@pytest.fixture
def group():
    with limited.memory_group(START) as group:
        if group is None:
            pytest.skip("this process may not make a memory cgroup; the stream under RLIMIT_AS runs in its place")
        yield group
        folder = group.folder
    assert not folder.exists()


def check(result):
    assert (result.returncode, result.stderr) == (0, "")
    seen = json.loads(result.stdout)
    assert min(seen["counts"].values()) > 10 and sum(seen["counts"].values()) == 200, seen
    assert 300 < seen["longest"] < 3000
    assert (seen["second"], seen["small"], seen["first"], seen["waited"]) == ("refused", "CAPPED", 7, 2), seen
    assert seen["peak"] <= seen["limit"] == seen["total"]
    return seen


@pytest.mark.parametrize("seed", [1, 2])
def test_two_hundred_requests_under_an_address_space_limit(wide, seed):
    seen = check(child(None, STREAM, wide, BUDGET, "", seed))
    assert seen["told"] == seen["limit"]


def test_two_hundred_requests_in_a_cgroup(wide, group):
    """The budget is told to nobody: the engine reads it from the group. No process of the group was killed."""
    seen = check(child(group, STREAM, wide, BUDGET, group.limit_file, 3))
    assert seen["told"] is None
    assert seen["cgroup_limit"] == seen["limit"] < START
    assert Path(seen["cgroup"]).name == group.folder.name
    assert group.oom_kills() == 0


def test_without_admission_the_group_kills(wide, group):
    """What the stream would have met: the group is no paper tiger."""
    result = child(group, UNCHECKED, wide, BUDGET, group.limit_file, PANTHEON_MEMWATCH="0")
    assert (result.returncode, result.stdout) == (-9, "begun\n")
    assert group.oom_kills() == 1
