"""Two students start from adapters that another run made; then plain PEFT loads what came out.

    python examples/own_dataset.py
    python examples/start_from_adapters.py runs/own_dataset

`initial_adapters` takes PEFT folders, whoever made them, and repositories of the Hub (docs/hub.md).
"""

import sys

from datasets import load_dataset
from own_dataset import DATA, right_output
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from trl_populora import PopulationSelfPlayConfig, PopulationSelfPlayTrainer
from trl_populora.integrations import resolve_base


def main(source="runs/own_dataset", model="tiny", output="runs/from_adapters", rounds=4) -> PopulationSelfPlayTrainer:
    path = resolve_base(model)
    args = PopulationSelfPlayConfig(
        output_dir=output,
        num_teachers=0,
        num_students=2,
        initial_adapters={"student_0": f"{source}/student_0", "student_1": f"{source}/student_1"},
        lora_r=16,  # as those adapters have it
        num_generations=4,
        per_device_train_batch_size=8,
        max_completion_length=48,
        max_steps=rounds,
        learning_rate=1e-4,
        gradient_checkpointing=False,
        use_cpu=True,
        bf16=False,
        save_strategy="no",
        report_to="none",
        overwrite_output_dir=True,
    )
    dataset = load_dataset("json", data_files=str(DATA), split="train")
    trainer = PopulationSelfPlayTrainer(path, right_output, args, train_dataset=dataset)
    trainer.train()
    trainer.save_model()

    student = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(path), f"{output}/student_0")
    tokenizer = AutoTokenizer.from_pretrained(path)
    asked = tokenizer.apply_chat_template(
        dataset[0]["prompt"], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    answer = student.generate(**asked, max_new_tokens=32, do_sample=False)[0, asked["input_ids"].shape[1] :]
    print(f"right: {dataset[0]['answer']}; student_0 says:\n{tokenizer.decode(answer, skip_special_tokens=True)}")
    return trainer


if __name__ == "__main__":
    main(*sys.argv[1:])
