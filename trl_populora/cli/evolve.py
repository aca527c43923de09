"""`populora evolve`: make a child of saved LoRA adapters by one mutation or crossover.

Parents and child are ordinary PEFT folders, whether a population wrote them or not.
"""

import os


def add_arguments(parser) -> None:
    parser.add_argument("parents", nargs="+", metavar="PARENT", help="adapter folders, best first")
    parser.add_argument("--operator", required=True, help="svd_structured, gaussian, dare, svd_subspace, average, ...")
    parser.add_argument("--output", required=True, help="folder of the child")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="parameters of the operator")


def run(options) -> int:
    from ..evolution import OPERATORS, EvolutionSettings, breed, cosine, read_adapter, write_adapter
    from ..run_files.files import write_json
    from ..run_files.layout import EVOLUTION_FILE

    known = OPERATORS[options.operator].parameters if options.operator in OPERATORS else {}
    parameters = read_parameters(options.set, texts=[name for name, value in known.items() if isinstance(value, str)])
    # Built for its checks: names and values that the operator refuses.
    EvolutionSettings(operators=(options.operator,), operator_parameters={options.operator: parameters})
    needed = OPERATORS[options.operator].num_parents
    if len(options.parents) != needed and not (options.operator == "average" and len(options.parents) > needed):
        raise ValueError(f"{options.operator} takes {needed} parents, got {len(options.parents)}")
    if os.path.exists(options.output) and os.listdir(options.output):
        raise ValueError(f"--output {options.output} is not empty")
    parents = [read_adapter(folder) for folder in options.parents]
    child = breed(options.operator, [factors for _, factors in parents], seed=options.seed, parameters=parameters)
    write_adapter(options.output, parents[0][0], child)
    story = {"operator": options.operator, "parameters": parameters, "seed": options.seed, "parents": options.parents}
    write_json(os.path.join(options.output, EVOLUTION_FILE), story)
    print(f"{options.output}: {options.operator} of {', '.join(options.parents)}")
    for folder, (_, factors) in zip(options.parents, parents):
        print(f"  cosine to {folder}: {cosine(child, factors):.3f}")
    return 0


def read_parameters(pairs: list[str], *, texts: list[str]) -> dict[str, float | str]:
    """`["p=0.5", "space=factors"]` to `{"p": 0.5, "space": "factors"}`; only parameters in `texts` are no numbers."""
    parameters: dict[str, float | str] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if name in texts:
            parameters[name] = value
            continue
        try:
            number = float(value)
        except ValueError:
            raise ValueError(f"--set {pair!r} must be NAME=NUMBER") from None
        parameters[name] = int(number) if number.is_integer() and "." not in value else number
    return parameters
