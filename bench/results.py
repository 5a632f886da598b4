"""Raw samples of a run, and the series that targets and tables are made of."""

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Sample:
    """One number: which case of a measure, of which system, in which round."""

    case: str
    system: str
    round: int
    value: float
    unit: str


@dataclass
class Section:
    """Everything one measure gave."""

    mode: str
    when: str
    seconds: float = 0.0
    samples: list[Sample] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    curves: dict[str, list[list[float]]] = field(default_factory=dict)


class Results:
    """Samples by measure, with what is known of the machine and the systems."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.measure = ""
        self.sections: dict[str, Section] = {}
        self.broken: list[str] = []
        self.left_out: dict[str, str] = {}
        self.machine: dict[str, str] = {}
        self.server: dict[str, str] = {}
        self.systems: list[dict[str, Any]] = []

    def begin(self, measure: str) -> Section:
        self.measure = measure
        self.sections[measure] = Section(self.mode, time.strftime("%Y-%m-%d"))
        return self.sections[measure]

    def add(self, case: str, system: str, number: int, value: float, unit: str) -> None:
        self.sections[self.measure].samples.append(Sample(case, system, number, value, unit))

    def note(self, text: str) -> None:
        notes = self.sections[self.measure].notes
        if text not in notes:
            notes.append(text)

    def series(self, measure: str, case: str, system: str) -> dict[int, float]:
        """Round -> value."""
        found = self.sections[measure].samples if measure in self.sections else []
        return {one.round: one.value for one in found if (one.case, one.system) == (case, system)}

    def cases(self, measure: str) -> list[str]:
        samples = self.sections[measure].samples if measure in self.sections else []
        return list(dict.fromkeys(sample.case for sample in samples))

    def systems_of(self, measure: str, case: str | None = None) -> list[str]:
        samples = self.sections[measure].samples if measure in self.sections else []
        return list(dict.fromkeys(one.system for one in samples if case in (None, one.case)))

    def unit(self, measure: str, case: str) -> str:
        return next(one.unit for one in self.sections[measure].samples if one.case == case)

    # --- the file

    def save(self, file: Path) -> None:
        facts = {key: value for key, value in vars(self).items() if key not in ("sections", "measure")}
        facts["sections"] = {name: asdict(section) for name, section in self.sections.items()}
        file.write_text(json.dumps(facts, indent=1, sort_keys=True, ensure_ascii=False) + "\n")

    def keep_from(self, file: Path) -> None:
        """Take over the sections of an earlier run that this one has not measured again."""
        if not file.exists():
            return
        facts = json.loads(file.read_text())
        for name, raw in facts["sections"].items():
            if name not in self.sections:
                self.sections[name] = load_section(raw)
        known = {(system["name"], system["engine"]) for system in self.systems}
        self.systems += [one for one in facts["systems"] if (one["name"], one["engine"]) not in known]


def load_section(raw: dict[str, Any]) -> Section:
    return Section(**{**raw, "samples": [Sample(**sample) for sample in raw["samples"]]})


def load(file: Path) -> Results:
    facts = json.loads(file.read_text())
    results = Results(facts["mode"])
    results.sections = {name: load_section(raw) for name, raw in facts.pop("sections").items()}
    vars(results).update(facts)
    return results
