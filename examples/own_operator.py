"""An evolution operator of your own: `shrink` makes a child whose update is a part of its parent's.

    python examples/own_operator.py

An operator is a function of its parents' LoRA factors. It must not change them.
"""

from datasets import load_dataset
from own_dataset import DATA, right_output

from trl_populora import OPERATORS, PopulationSelfPlayConfig, PopulationSelfPlayTrainer
from trl_populora.evolution import Operator, delta_norm
from trl_populora.integrations import resolve_base


def shrink(parents, rng, *, keep: float = 0.5):
    """dW' = keep dW. B is multiplied and A stays, so a fresh adapter (B = 0) stays as it is."""
    if not 0 < keep <= 1:
        raise ValueError(f"keep={keep} must be in (0, 1].")
    return {path: factor._replace(A=factor.A.clone(), B=factor.B * keep) for path, factor in parents[0].items()}


OPERATORS["shrink"] = Operator(shrink, num_parents=1)


def main(model="tiny", output="runs/own_operator", rounds=6) -> PopulationSelfPlayTrainer:
    args = PopulationSelfPlayConfig(
        output_dir=output,
        num_teachers=0,
        num_students=2,
        num_generations=4,
        per_device_train_batch_size=8,
        max_completion_length=48,
        max_steps=rounds,
        evolution_interval=2,
        evolution_kwargs={"operators": ["shrink"], "operator_parameters": {"shrink": {"keep": 0.8}}},
        learning_rate=3e-4,
        gradient_checkpointing=False,
        use_cpu=True,
        bf16=False,
        save_strategy="no",
        report_to="none",
        overwrite_output_dir=True,
    )
    dataset = load_dataset("json", data_files=str(DATA), split="train")
    trainer = PopulationSelfPlayTrainer(resolve_base(model), right_output, args, train_dataset=dataset)
    trainer.train()
    print(trainer.lineage.family_tree(list(trainer.population)))
    for name in trainer.population:
        print(f"{name}: size of its update {delta_norm(trainer.population.factors(name)):.3f}")
    return trainer


if __name__ == "__main__":
    main()
