"""How far are the gradients of members on a base in 4 bits (NF4) from those on the base before it was packed?

    python benchmarks/quantized_gradients.py [--model NAME] [--json FILE]

Four members with the same weights learn from the same rows on both bases, in float32 on the CPU. For each member it
prints the cosine of the angle between the two gradients, and the length of their difference relative to the gradient
on the unpacked base. Texts are the seed programs of the package. The model is SmolLM2-135M unless another is named.
"""

import argparse
import json
from pathlib import Path

import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

from trl_populora.integrations.base_models import SMOLLM2, resolve_base
from trl_populora.population import Population
from trl_populora.tasks import make_task_types
from trl_populora.training.quantized import completed, keep_gradients


NF4 = {"load_in_4bit": True, "bnb_4bit_use_double_quant": True}


def compare(folder: str, *, rows: int = 8, tokens: int = 64, size: float = 0.01) -> dict[str, dict[str, float]]:
    """Cosine and relative distance of each member's gradient on the packed base to that on the unpacked one.

    Args:
        folder (`str`): Folder or Hub id of the base.
        rows (`int`), tokens (`int`): Rows of a batch, a quarter for each member; tokens of a row.
        size (`float`): Standard deviation of the adapters' B, which would be 0 at the start.
    """
    tokenizer = AutoTokenizer.from_pretrained(folder)
    seeds = make_task_types(["code_o"])["code_o"].seeds(rows)
    texts = [(task.payload.program + "\n") * 20 for task in seeds]
    ids = torch.tensor([tokenizer(text)["input_ids"][:tokens] for text in texts])
    found = []
    for config in (BitsAndBytesConfig(**completed(NF4, dtype="float32")), None):
        base = AutoModelForCausalLM.from_pretrained(folder, quantization_config=config, dtype=torch.float32)
        keep_gradients(base)
        lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear")
        population, draw = Population(base, lora, num_teachers=2, num_students=2), torch.Generator().manual_seed(1)
        for name in population:
            for parameter in population.parameters(name):
                parameter.data += size * torch.randn(parameter.shape, generator=draw)
        with population.route([name for name in population for _ in range(rows // 4)]):
            population.base_model(ids, labels=ids).loss.backward()
        found.append({name: torch.cat([p.grad.flatten() for p in population.parameters(name)]) for name in population})
    packed, whole = found
    return {
        name: {
            "cosine": torch.cosine_similarity(packed[name], wanted, dim=0).item(),
            "distance": ((packed[name] - wanted).norm() / wanted.norm()).item(),
        }
        for name, wanted in whole.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=SMOLLM2, help="the base: a folder or a Hub id")
    parser.add_argument("--json", type=Path, help="write the numbers to this file, too")
    options = parser.parse_args()
    numbers = compare(resolve_base(options.model))
    for name, one in numbers.items():
        print(f"{name:<12} cosine {one['cosine']:.4f}, distance {one['distance']:.4f}")
    if options.json:
        options.json.write_text(json.dumps({"model": options.model, "members": numbers}, indent=1) + "\n")


if __name__ == "__main__":
    main()
