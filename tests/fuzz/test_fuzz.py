"""A few cases of every target of the fuzzing, so that it stays in working order."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pantheon

pytestmark = pytest.mark.hostile

RUN = Path(__file__).resolve().parent / "run.py"
TARGETS = ("gguf", "folders", "tokenizers", "rwkv", "split", "templates", "convert")


def run(*arguments):
    """Runs Python with the package that this process has, and the fuzzing, on the path."""
    home = str(Path(pantheon.__file__).resolve().parent.parent)
    env = os.environ | {"PYTHONPATH": os.pathsep.join((home, str(RUN.parent), str(RUN.parent.parent)))}
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, env=env,
                          timeout=600, check=False)


@pytest.mark.parametrize("target", TARGETS)
def test_cases(tmp_path, target):
    """Thirty cases without a finding, in two runs of which the second goes on where the first stopped."""
    state = tmp_path / "state.json"
    for cases in (12, 30):
        done = run(RUN, "--target", target, "--cases", cases, "--resume", state, "--keep", tmp_path / "kept")
        assert done.returncode == 0, done.stdout + done.stderr
    counts = json.loads(state.read_text())
    assert counts["next"] == 30 and sum(counts["outcomes"].values()) == 30 and counts["outcomes"]["refused"] > 0
    assert not (tmp_path / "kept").exists()


FINDINGS = {
    "signal": ("os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
    "kind": ("raise KeyError('x')", "KeyError at"),
    "memory": ("b'x' * (300 << 20)", "memory above 300 MB"),
    "hang": ("time.sleep(1000)", "hang above 1 s"),
    "unnamed": ("may_not_refuse()", "does not name the file"),
    "open": ("kept.append(open(folder / 'chat_template.jinja'))", "left open: chat_template.jinja"),
}
# The worker, with a target that goes wrong in some cases.
WORKER = """
import os, signal, sys, time
import target_text, worker
from verdicts import may_refuse
kept = []

def may_not_refuse():
    with may_refuse(ValueError, names="a file"):
        raise ValueError("x")

def run(folder, options):
    if options["messages"] == 5:
        {statement}
    target_text.run_templates(folder, options)

worker.MEMORY_LIMIT = 300 << 20
worker.TARGETS["templates"] = type(worker.TARGETS["templates"])(target_text.make_templates, run)
sys.exit(worker.main())
"""
DRIVER = """
import sys
import run
run.HANG, run.WORKER = float(sys.argv.pop(1)), run.Path(sys.argv.pop(1))
sys.exit(run.main())
"""


@pytest.mark.parametrize("what", FINDINGS)
def test_findings(tmp_path, what):
    """Each kind of finding is seen and its files are kept, and the cases after it run."""
    statement, says = FINDINGS[what]
    (tmp_path / "bad_worker.py").write_text(WORKER.replace("{statement}", statement))
    state, kept = tmp_path / "state.json", tmp_path / "kept"
    done = run("-c", DRIVER, 1 if what == "hang" else 60, tmp_path / "bad_worker.py", "--target", "templates",
               "--cases", 12, "--resume", state, "--keep", kept)
    counts = json.loads(state.read_text())
    assert done.returncode == 1 and counts["next"] == 12, done.stdout + done.stderr
    assert counts["outcomes"]["refused"] > 0
    assert any(says in finding for finding in counts["findings"]), counts["findings"]
    if what != "open":               # seen at the end of a batch, so it belongs to no case
        [folder] = kept.iterdir()
        assert {path.name for path in folder.iterdir()} == {"chat_template.jinja", "OPTIONS"}
