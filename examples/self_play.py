"""Two teachers and two students of the tiny base play ten rounds against each other, on a CPU in about a minute.

    python examples/self_play.py

Replace "tiny" by the name of a model on the Hub, and leave the settings marked "small" out.
"""

from trl_populora import PopulationSelfPlayConfig, PopulationSelfPlayTrainer
from trl_populora.integrations import resolve_base
from trl_populora.reporting import LiveView


def main(model="tiny", output="runs/self_play", rounds=10) -> PopulationSelfPlayTrainer:
    args = PopulationSelfPlayConfig(
        output_dir=output,
        num_teachers=2,
        num_students=2,
        max_steps=rounds,
        evolution_interval=5,
        num_generations=4,
        prompts_per_teacher=3,
        learning_rate=3e-4,  # small: a large base learns at 1e-5
        max_completion_length=96,  # small
        prompt_style="compact",  # small
        num_references=1,  # small
        task_kwargs={"code_f": {"num_inputs": 4}},  # small
        seed_families=["add", "each", "keep", "total", "reverse", "cut"],  # small: short programs to start from
        seed_tasks=32,  # small
        gradient_checkpointing=False,  # small
        use_cpu=True,  # small
        bf16=False,  # small
        save_strategy="no",
        report_to="none",
        overwrite_output_dir=True,
    )
    with LiveView(rounds=rounds) as view:
        trainer = PopulationSelfPlayTrainer(resolve_base(model), args=args)
        view.attach(trainer)
        trainer.train()
    trainer.save_model()  # one PEFT folder for each member
    print(trainer.lineage.family_tree(list(trainer.population)))
    for name in trainer.population:
        print(f"{name}: rating {trainer.ratings[name].mu:.1f}, adapter in {output}/{name}")
    return trainer


if __name__ == "__main__":
    main()
