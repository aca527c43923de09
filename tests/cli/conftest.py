import pytest
import yaml

from trl_populora.training.supported import SELF_PLAY


SETTINGS = {
    "use_cpu": True,
    "bf16": False,
    "num_teachers": 1,
    "num_students": 1,
    "num_generations": 2,
    "per_device_train_batch_size": 6,
    "max_steps": 2,
    "max_completion_length": 8,
    "lr_scheduler_type": "constant",
    "seed_tasks": 4,
    "num_references": 1,
    "task_kwargs": {"code_f": {"num_inputs": 4}},
    "prompt_style": "compact",
    "task_types": ["code_o"],
    "evolution_interval": 0,
    "gradient_checkpointing": False,
    "report_to": "none",
    "save_strategy": "no",
    "lora_r": 2,
    "lora_alpha": 4,
    "executor_kwargs": {"workers": 1},
    "plots": False,
}


def write_recipe(folder, model, **changes) -> list[str]:
    """Write a small recipe and return the command line for it. The value "leave out" drops a setting."""
    own = {
        name: value for name, value in SETTINGS.items() if changes.get("num_teachers") != 0 or name not in SELF_PLAY
    }
    settings = own | {"model_name_or_path": model, "output_dir": str(folder / "run")} | changes
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in settings.items() if value != "leave out"}))
    return ["--config", str(path)]


@pytest.fixture
def recipe(tmp_path, tiny_model):
    return lambda **changes: write_recipe(tmp_path, tiny_model, **changes)


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory, tiny_model) -> str:
    """A finished run of two rounds with an evolution step."""
    from trl_populora import train

    folder = tmp_path_factory.mktemp("runs")
    changes = {
        "num_teachers": 2,
        "num_students": 2,
        "evolution_interval": 1,
        "per_device_train_batch_size": 12,
        "save_strategy": "steps",
        "save_steps": 1,
        "overwrite_output_dir": True,
        "plots": True,
    }
    assert train.main(write_recipe(folder, tiny_model, **changes)) == 0
    return str(folder / "run")
