"""`populora evolve`: makes a child of saved LoRA adapters by one mutation or crossover.

Parents and child are ordinary PEFT folders, whether a population wrote them or not.
"""

import argparse
import os

from ..run_files.layout import ADAPTER_CONFIG_FILE
from ..settings import suggest


OPERATORS = (
    *("svd_structured", "layer_gaussian", "component_masking", "gaussian", "neftune"),
    *("dare", "layerwise", "svd_subspace", "extrapolative", "average", "clone"),
)
"""Names of the operators, listed here because importing them needs PyTorch."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("parents", nargs="+", metavar="PARENT", help="adapter folders, best first")
    parser.add_argument(
        "--operator",
        required=True,
        help="svd_structured, gaussian, dare, svd_subspace, average, ..., or module:Name of your own",
    )
    parser.add_argument("--output", required=True, help="folder of the child")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the operator (default: 0)")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="parameters of the operator")


def run(options: argparse.Namespace) -> int:
    if ":" not in options.operator and options.operator not in OPERATORS:
        hint = suggest(options.operator, OPERATORS)
        raise ValueError(f"--operator {options.operator!r} is unknown. {hint} One of your own is named 'module:Name'.")
    for folder in options.parents:
        if not os.path.isfile(os.path.join(folder, ADAPTER_CONFIG_FILE)):
            raise ValueError(f"{folder} is not a PEFT folder: it has no {ADAPTER_CONFIG_FILE}.")

    from ..evolution import breed, cosine, get_operator, read_adapter, read_parameters, write_adapter
    from ..population.factors import not_finite
    from ..reporting.tables import counted
    from ..run_files.files import check_writable, gone_if_unused, is_free, write_json
    from ..run_files.layout import EVOLUTION_FILE

    parameters = read_parameters(options.operator, options.set)
    needed = get_operator(options.operator).num_parents
    if len(options.parents) != needed and not (options.operator == "average" and len(options.parents) > needed):
        least = "at least " if options.operator == "average" else ""
        raise ValueError(f"{options.operator} takes {least}{counted(needed, 'parent')}, got {len(options.parents)}")
    if not is_free(options.output):
        raise ValueError(f"--output {options.output} is not empty: name a new folder")
    story = {"operator": options.operator, "parameters": parameters, "seed": options.seed, "parents": options.parents}
    place = os.path.join(options.output, EVOLUTION_FILE)
    with gone_if_unused(options.output, lambda: os.path.isfile(place)):
        check_writable(options.output, option="--output")
        parents = [read_adapter(folder) for folder in options.parents]
        for folder, (_, factors) in zip(options.parents, parents):
            if wrong := not_finite(factors):
                raise ValueError(f"{folder} has weights that are not finite, at {wrong[0]}. Name another parent.")
        child = breed(options.operator, [factors for _, factors in parents], seed=options.seed, parameters=parameters)
        if wrong := not_finite(child):
            raise ValueError(
                f"The child has weights that are not finite, at {wrong[0]}: make its changes smaller with --set."
            )
        write_adapter(options.output, parents[0][0], child)
        write_json(place, story)
    print(f"{options.output}: {options.operator} of {', '.join(options.parents)}")
    for folder, (_, factors) in zip(options.parents, parents):
        print(f"  cosine to {folder}: {cosine(child, factors):.3f}")
    bases = list(dict.fromkeys(config.base_model_name_or_path for config, _ in parents))
    if len(bases) > 1:
        print(
            f"  The parents name other bases, {', '.join(map(str, bases))}: of different models, no child is useful."
        )
    return 0
