"""What a target's cases came to, kept in a file so that a later run goes on where this one stopped."""
from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass
class Campaign:
    """Counts of the cases first..next-1 of a target and a seed."""

    target: str
    seed: int
    first: int
    next: int
    spans: list[dict] = field(default_factory=list)              # which cases ran with which code, in which build
    outcomes: dict[str, int] = field(default_factory=dict)
    errors: dict[str, dict] = field(default_factory=dict)        # documented: "kind at place" -> count, case, text
    findings: dict[str, dict] = field(default_factory=dict)      # the same of the others
    slowest: list[int] = field(default_factory=lambda: [0, 0])   # milliseconds, case
    peak_mb: int = 0
    seconds: float = 0.0

    @classmethod
    def open(cls, path: Path | None, target: str, seed: int, first: int) -> Campaign:
        if path is None or not path.exists():
            return cls(target, seed, first, first)
        campaign = cls(**json.loads(path.read_text()))
        if (campaign.target, campaign.seed) != (target, seed):
            raise ValueError(f"{path}: is of target {campaign.target}, seed {campaign.seed}")
        return campaign

    def save(self, path: Path) -> None:
        part = path.with_name(path.name + ".part")
        part.write_text(json.dumps(asdict(self), indent=1))
        os.replace(part, path)

    def begin(self, code: str, build: str) -> None:
        """From here on cases run with this code in this build."""
        if not self.spans or (self.spans[-1]["code"], self.spans[-1]["build"]) != (code, build):
            self.spans.append({"code": code, "build": build, "first": self.next, "end": self.next})

    def add(self, number: int, took_ms: int, outcome: str, kind: str, where: str, message: str) -> bool:
        """Counts a case; True for the first finding of its kind."""
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        self.next = self.spans[-1]["end"] = number + 1
        self.slowest = max(self.slowest, [took_ms, number])
        if outcome == "ran":
            return False
        table = self.findings if outcome == "finding" else self.errors
        key = f"{kind} at {where}" if where else kind
        entry = table.setdefault(key, {"count": 0, "case": number, "message": message})
        entry["count"] += 1
        return outcome == "finding" and entry["count"] == 1

    def report(self) -> str:
        lines = [f"{self.target}: seed {self.seed}, cases {self.first}..{self.next - 1}, {self.seconds:.0f} s, slowest "
                 f"{self.slowest[0]} ms (case {self.slowest[1]}), at most {self.peak_mb} MB"]
        lines += [f"  {span['build']} build of {span['code']}: {span['first']}..{span['end'] - 1}"
                  for span in self.spans]
        lines.append("  " + ", ".join(f"{name} {count}" for name, count in sorted(self.outcomes.items())))
        kinds: Counter[str] = Counter()
        for key, entry in self.errors.items():
            kinds[key.partition(" at ")[0]] += entry["count"]
        counts = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())
        lines.append(f"  refused with {counts or 'nothing'}, at {len(self.errors)} places")
        lines += [f"  FINDING {entry['count']} x {key} (case {entry['case']}): {entry['message'][:200]!r}"
                  for key, entry in self.findings.items()]
        return "\n".join(lines)
