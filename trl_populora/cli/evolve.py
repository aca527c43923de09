"""`populora evolve`: make a child of saved LoRA adapters by one mutation or crossover.

Parents and child are ordinary PEFT folders, whether a population wrote them or not.
"""

import json
import os


def add_arguments(parser) -> None:
    parser.add_argument("parents", nargs="+", metavar="PARENT", help="adapter folders, best first")
    parser.add_argument("--operator", required=True, help="svd_structured, gaussian, dare, svd_subspace, average, ...")
    parser.add_argument("--output", required=True, help="folder of the child")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="parameters of the operator")


def run(options) -> int:
    from ..evolution import OPERATORS, breed, cosine
    from ..evolution.replacement import EvolutionSettings

    parameters = read_parameters(options.set)
    # Built for its checks: names and values that the operator refuses.
    EvolutionSettings(operators=(options.operator,), operator_parameters={options.operator: parameters})
    needed = OPERATORS[options.operator].num_parents
    if len(options.parents) != needed:
        raise ValueError(f"{options.operator} takes {needed} parents, got {len(options.parents)}")
    if os.path.exists(options.output) and os.listdir(options.output):
        raise ValueError(f"--output {options.output} is not empty")
    parents = [read_adapter(folder) for folder in options.parents]
    child = breed(options.operator, [factors for _, factors in parents], seed=options.seed, parameters=parameters)
    write_adapter(options.output, parents[0][0], child)
    story = {"operator": options.operator, "parameters": parameters, "seed": options.seed, "parents": options.parents}
    with open(os.path.join(options.output, "evolution.json"), "w", encoding="utf-8") as file:
        json.dump(story, file, indent=1)
        file.write("\n")
    print(f"{options.output}: {options.operator} of {', '.join(options.parents)}")
    for folder, (_, factors) in zip(options.parents, parents):
        print(f"  cosine to {folder}: {cosine(child, factors):.3f}")
    return 0


def read_parameters(pairs: list[str]) -> dict[str, float]:
    """`["p=0.5"]` to `{"p": 0.5}`."""
    parameters = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        try:
            number = float(value)
        except ValueError:
            raise ValueError(f"--set {pair!r} must be NAME=NUMBER") from None
        parameters[name] = int(number) if number.is_integer() and "." not in value else number
    return parameters


def read_adapter(folder: str):
    """The `LoraConfig` and the factors of a PEFT folder.

    Raises:
        ValueError: If the folder holds no LoRA adapter, or one with settings that operators cannot keep.
    """
    from peft import LoraConfig
    from safetensors.torch import load_file

    from ..population import Factor
    from ..population.population import check_lora_config

    path = os.path.join(folder, "adapter_model.safetensors")
    if not os.path.isfile(path) or not os.path.isfile(os.path.join(folder, "adapter_config.json")):
        raise ValueError(f"{folder} is no PEFT folder: adapter_config.json and adapter_model.safetensors are needed")
    config = LoraConfig.from_pretrained(folder)
    config.lora_dropout = 0.0  # matters to training only
    check_lora_config(config)
    scaling = config.lora_alpha / (config.r**0.5 if config.use_rslora else config.r)
    tensors = load_file(path)
    modules = [key.removesuffix(".lora_A.weight") for key in tensors if key.endswith(".lora_A.weight")]
    if not modules or len(tensors) != 2 * len(modules):
        raise ValueError(f"{path} holds other tensors than pairs of lora_A and lora_B")
    factors = {
        module: Factor(tensors[f"{module}.lora_A.weight"], tensors[f"{module}.lora_B.weight"], scaling)
        for module in modules
    }
    return config, factors


def write_adapter(folder: str, config, factors) -> None:
    """Write a PEFT folder."""
    from safetensors.torch import save_file

    os.makedirs(folder, exist_ok=True)
    tensors = {}
    for module, factor in factors.items():
        tensors[f"{module}.lora_A.weight"] = factor.A.contiguous().clone()
        tensors[f"{module}.lora_B.weight"] = factor.B.contiguous().clone()
    save_file(tensors, os.path.join(folder, "adapter_model.safetensors"), metadata={"format": "pt"})
    config.save_pretrained(folder)
