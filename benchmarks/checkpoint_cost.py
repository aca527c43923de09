"""What it costs to write the adapters and the optimizer of N members: as PEFT writes adapters, and as we do.

    python benchmarks/checkpoint_cost.py --json benchmarks/results/checkpoint_cost.json

Both ways alternate in one process and write the same bytes. "one" is PEFT's `save_pretrained` for each member, "ours"
is `Population.save`; both also write AdamW's state by `torch.save`, as Trainer does. Read `cpu_ratio`: the median of
ours by one's, of processor time. `grown_mib` is by how much the peak of resident memory rises in a call of each.
"""

import argparse
import json
import os
import tempfile

import torch
from base_shapes import load
from measuring import alternate, peak, reset_peak
from peft import LoraConfig

from trl_populora.population import Population


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="HuggingFaceTB/SmolLM2-135M-Instruct", help="name, folder, or a shape")
    parser.add_argument("--layers", type=int, default=4, help="keep only the first so many layers of the model")
    parser.add_argument("--members", type=int, default=16)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", metavar="FILE", help="where the numbers go")
    args = parser.parse_args()
    device = torch.device("cpu")
    model, _ = load(args.model, device, torch.float32, layers=args.layers)
    lora = LoraConfig(r=args.rank, lora_alpha=2 * args.rank, target_modules="all-linear")
    students = args.members // 2
    population = Population(model, lora, num_teachers=args.members - students, num_students=students)
    parameters = [p for name in population for p in population.parameters(name)]
    optimizer = torch.optim.AdamW(parameters)
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()

    with tempfile.TemporaryDirectory() as folder:

        def optimizer_file() -> None:
            torch.save(optimizer.state_dict(), os.path.join(folder, "optimizer.pt"))

        def by_peft() -> None:
            for name in population:
                population.model.save_pretrained(os.path.join(folder, "peft"), selected_adapters=[name])
            optimizer_file()

        def ours() -> None:
            population.save(os.path.join(folder, "ours"))
            optimizer_file()

        variants = {"one": by_peft, "ours": ours}
        for call in variants.values():
            call()
        same = all(read(folder, "peft", name) == read(folder, "ours", name) for name in population)
        grown = {}
        for name, call in variants.items():
            reset_peak(device)
            before = peak(device)
            call()
            grown[name] = peak(device) - before
        measured = alternate(device, variants, args.repeats)
    settings = {name: value for name, value in vars(args).items() if name != "json"}
    result = {"settings": settings, "same_bytes": same, **measured, "grown_mib": grown}
    print(json.dumps(result, indent=1))
    if args.json:
        with open(args.json, "w") as file:
            json.dump(result, file, indent=1)
            file.write("\n")


def read(folder: str, way: str, member: str) -> bytes:
    with open(os.path.join(folder, way, member, "adapter_model.safetensors"), "rb") as file:
        return file.read()


if __name__ == "__main__":
    main()
