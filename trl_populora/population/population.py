"""`Population`: a table of members and their adapters on one frozen base model."""

import copy
import os
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import torch
from peft import LoraConfig, PeftModel, TaskType, get_peft_model
from peft.tuners.lora import LoraLayer
from safetensors.torch import save_file
from torch import nn
from transformers import PreTrainedModel

from ..run_files.files import write_files, write_json
from ..run_files.layout import ADAPTER_FILE, POPULATION_FILE
from ..run_files.run import TABLE_VERSION, read_table
from .adapters import misfit, read_adapter
from .factors import Factor, Factors, check_fit, to_tensors
from .lora_config import check_linear, check_lora_config, check_modules
from .member import Member, check_names, member_names
from .routing import Routing


class Population(Mapping[str, Member]):
    """Teachers and students, each a LoRA adapter on one shared frozen base.

    A mapping from name to [`Member`]. Without routing, a forward of the model is the frozen base. Inside
    `population.route(names_per_row)`, row `i` runs through the adapter `names_per_row[i]`. All members stay trainable.

    Args:
        model ([`~transformers.PreTrainedModel`]):
            Frozen base model. Its LoRA layers are created here.
        lora_config ([`~peft.LoraConfig`]):
            Configuration of every adapter; each gets a copy. DoRA, LoRA bias, `modules_to_save`, rank or alpha
            patterns, dropout, and targets on the LM head are refused.
        num_teachers, num_students (`int`):
            Size of each role. At least one student; without teachers, students learn from a dataset.
        shared_member (`bool`, *optional*, defaults to `False`):
            Whether one adapter, `"agent_0"`, plays both roles (the single-agent baseline). Needs one teacher and one
            student.
        learning_rate (`float` or `dict[str, float]`, *optional*, defaults to `1e-5`):
            Peak learning rate of all members, or per role (`"teacher"`, `"student"`), or per member, by its name.
        seed (`int`, *optional*, defaults to `0`):
            Seed of the adapters' initial values. Each adapter also uses its own name, so adding members does not
            change the values of others.
        shared_init (`bool`, *optional*, defaults to `False`):
            Whether all founders start from the same matrix A, instead of each from its own. Then their factors
            correspond to each other. B is 0, unless `init_lora_weights` is `False` or `"orthogonal"`.
        guests (`Sequence[str]`, *optional*):
            Names of frozen adapters beside the members. Rows can run through them, but they are not
            members: they are not in the table, not trained and not saved. [`Population.admit`] sets their weights.

    Attributes:
        guests (`tuple[str, ...]`): Names of the frozen adapters.
    """

    def __init__(
        self,
        model: PreTrainedModel | PeftModel,
        lora_config: LoraConfig,
        *,
        num_teachers: int,
        num_students: int,
        shared_member: bool = False,
        learning_rate: float | Mapping[str, float] = 1e-5,
        seed: int = 0,
        shared_init: bool = False,
        guests: Sequence[str] = (),
    ) -> None:
        if isinstance(model, PeftModel) or any(isinstance(module, LoraLayer) for module in model.modules()):
            raise ValueError(
                "The model already carries adapters, of PEFT or of an earlier population. Load the base model again; "
                "the population makes its own adapters. A run starts from adapters that exist by initial_adapters."
            )
        if num_students < 1 or num_teachers < 0 or (shared_member and (num_teachers, num_students) != (1, 1)):
            raise ValueError(
                f"num_teachers={num_teachers}, num_students={num_students}, shared_member={shared_member}: there must "
                "be at least one student, and a member that plays both roles is one teacher and one student."
            )
        check_lora_config(lora_config)
        check_modules(model, lora_config.target_modules, option="target_modules")
        names = member_names(num_teachers, num_students, shared=shared_member)
        self.guests = tuple(guests)
        adapters = [*names, *self.guests]
        check_names(adapters, {part for path, _ in model.named_modules() for part in path.split(".")})
        self.teachers = tuple(f"teacher_{i}" for i in range(num_teachers))
        self.students = tuple(f"student_{i}" for i in range(num_students))
        self.shared_member = shared_member
        self.seed = seed
        self.shared_init = shared_init
        self._members = {name: self._founder(name, learning_rate) for name in names}
        self._add_adapters(model, lora_config, adapters)
        self.model.population = self  # pyright: ignore[reportArgumentType]  # torch's hint: tensors and modules only
        self.routing = Routing(self.model, adapters)
        if not self.routing.layers:
            raise ValueError(
                f"No LoRA layer was created: target_modules={lora_config.target_modules!r} match nothing."
            )
        head = self.base_model.get_output_embeddings()
        if any(layer is head for layer in self.routing.layers.values()):
            raise ValueError("target_modules covers the LM head, which GRPO bypasses. Remove 'lm_head' from it.")
        self._trained = [parameter for name in names for parameter in self.parameters(name)]
        self.set_trainable()

    # Members ---------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Member:
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def names(self, role: str | None = None) -> list[str]:
        """Adapter names of a role (`"teacher"`, `"student"`, `"shared"`), or of all members."""
        return [name for name, member in self._members.items() if role in (None, member.role)]

    def adapter_of(self, player: str) -> str:
        """Adapter of a player (`"teacher_0"`, `"student_0"`, ...): its own, or the shared one."""
        return "agent_0" if self.shared_member else player

    def parameters(self, name: str) -> list[nn.Parameter]:
        """Parameters of one member or guest (not copies), in module order, A before B."""
        return [matrix for pair in self.routing.pairs(name) for matrix in pair]

    def factors(self, name: str) -> Factors:
        """LoRA factors of one member or guest: the parameters themselves, detached from autograd."""
        layers = zip(self.routing.layers.items(), self.routing.pairs(name), strict=True)
        return {path: Factor(A.detach(), B.detach(), layer.scaling[name]) for (path, layer), (A, B) in layers}

    @torch.no_grad()
    def write(self, name: str, factors: Factors) -> None:
        """Copies factors into a member's parameters, in place, so that references in optimizer and engine stay valid.

        Raises:
            ValueError: If a module is missing, a shape differs, the scaling differs or a value is not finite.
        """
        own = self.factors(name)
        check_fit(name, factors, own)
        for path, (A, B, _) in factors.items():
            own[path].A.copy_(A)
            own[path].B.copy_(B)

    def replace(
        self,
        name: str,
        factors: Factors,
        *,
        operator: str,
        parents: Sequence[str],
        step: int,
        learning_rate: float | None = None,
        temperature: float | None = None,
    ) -> Member:
        """Puts a child into a slot: writes its weights in place, adds 1 to the version, and records its parents.

        Learning rate and temperature stay those of the slot unless given.
        """
        self.write(name, factors)
        old = self._members[name]
        self._members[name] = replace(
            old,
            version=old.version + 1,
            born_step=step,
            parents=tuple(f"{parent}@{self._members[parent].version}" for parent in parents),
            operator=operator,
            learning_rate=old.learning_rate if learning_rate is None else learning_rate,
            temperature=old.temperature if temperature is None else temperature,
        )
        self.routing.set_temperature(name, self._members[name].temperature)
        return self._members[name]

    def count_anew(self) -> None:
        """All members are as if born at step 0, because another training counts its steps from there."""
        self._members = {name: replace(member, born_step=0) for name, member in self._members.items()}

    def admit(self, guest: str, factors: Factors, *, temperature: float = 1.0) -> None:
        """Loads weights into a guest adapter, with a temperature relative to the run's. They stay until other weights
        are loaded.

        Raises:
            ValueError: If there is no such guest, or the factors do not fit.
        """
        if guest not in self.guests:
            raise ValueError(f"{guest!r} is not a guest of this population; its guests are {list(self.guests)}.")
        self.write(guest, factors)
        self.routing.set_temperature(guest, temperature)

    # Forward passes --------------------------------------------------------------------------------------------

    def route(self, names_per_row: Sequence[str]) -> AbstractContextManager[None]:
        """Context in which row `i` of every forward and backward runs as adapter `names_per_row[i]`."""
        return self.routing.rows(names_per_row)

    @property
    def base_model(self) -> PreTrainedModel:
        """The frozen base model that carries the LoRA layers."""
        return self.model.get_base_model()  # pyright: ignore[reportReturnType]  # PEFT's hint: any module

    @property
    def lora_configs(self) -> dict[str, LoraConfig]:
        """PEFT configuration of each member and guest."""
        return self.model.peft_config  # pyright: ignore[reportReturnType]  # PEFT's hint: of any method

    def set_trainable(self) -> None:
        """Makes all members trainable, freezes everything else, and turns PEFT's own adapter path off."""
        self.model.base_model.disable_adapter_layers()  # pyright: ignore[reportCallIssue]  # a LoraModel
        self.model.requires_grad_(False)
        for parameter in self._trained:
            parameter.requires_grad_(True)

    def stay_trainable(self) -> None:
        """Calls [`set_trainable`] if something has undone it, such as PEFT's `set_adapter` or `disable_adapter`."""
        trains = all(parameter.requires_grad for parameter in self._trained)
        if not trains or not all(layer.disable_adapters for layer in self.routing.layers.values()):
            self.set_trainable()

    # Files -----------------------------------------------------------------------------------------------------

    def table(self) -> dict:
        """The table of members as plain data: what `population.json` holds."""
        return {
            "format": TABLE_VERSION,
            "num_teachers": len(self.teachers),
            "num_students": len(self.students),
            "shared_member": self.shared_member,
            "seed": self.seed,
            "members": [member.to_json() for member in self._members.values()],
        }

    def name_base(self, name: str) -> None:
        """Sets the name of the base in every adapter, if the base was loaded from a folder, such as a cache."""
        for config in self.model.peft_config.values():
            config.base_model_name_or_path = name

    def save(self, folder: str) -> None:
        """Write one standard PEFT folder per member and `population.json`."""

        def write(aside: str) -> None:  # as PEFT does, which would list the whole model's parameters for every member
            for name in self:
                config = copy.copy(self.lora_configs[name])
                config.inference_mode = True
                config.base_model_name_or_path = config.base_model_name_or_path or self.base_model.name_or_path or None
                config.save_pretrained(os.path.join(aside, name))
                tensors = {key: X.contiguous() for key, X in to_tensors(self.factors(name)).items()}
                save_file(tensors, os.path.join(aside, name, ADAPTER_FILE), metadata={"format": "pt"})

        write_files(folder, write)
        write_json(os.path.join(folder, POPULATION_FILE), self.table())

    def load(self, folder: str, *, names: Sequence[str] | None = None) -> None:
        """Copy a saved population's weights and table into this one, in place.

        Args:
            folder (`str`): Folder of [`Population.save`].
            names (`Sequence[str]`, *optional*): Members to load. If unset, all; then the folder must hold no other
                members.

        Raises:
            ValueError: If the folder holds no population, one of another size, or adapters of another rank, scaling or
                other modules. The message has the settings that they were saved with.
        """
        for member, factors in self._saved(folder, names):
            self.write(member.id, factors)
            self.restore(member)

    def check_saved(self, folder: str, *, names: Sequence[str] | None = None) -> None:
        """Raises the `ValueError` of [`Population.load`], and loads nothing."""
        for _ in self._saved(folder, names):
            pass

    def restore(self, member: Member) -> None:
        """Restores a row of the table. The weights of the member are loaded separately."""
        self._members[member.id] = member
        self.routing.set_temperature(member.id, member.temperature)

    @classmethod
    def from_pretrained(cls, folder: str, model: PreTrainedModel, *, guests: Sequence[str] = ()) -> "Population":
        """Rebuild a saved population on its base model, with empty adapters for `guests` beside it."""
        table = read_table(folder)
        first = table["members"][0]["id"]
        population = cls(
            model,
            LoraConfig.from_pretrained(os.path.join(folder, first)),  # pyright: ignore[reportArgumentType]
            num_teachers=table["num_teachers"],
            num_students=table["num_students"],
            shared_member=table["shared_member"],
            seed=table["seed"],
            guests=guests,
        )
        population.load(folder)
        return population

    def _saved(self, folder: str, names: Sequence[str] | None) -> Iterator[tuple[Member, Factors]]:
        """Rows of a saved table with the adapters, which fit this population, one after the other."""
        table = read_table(folder)
        members = {row["id"]: Member.from_json(row) for row in table["members"]}
        if names is None and members.keys() != self._members.keys():
            raise ValueError(
                f"{folder} holds the members {sorted(members)}, but this population has {sorted(self._members)}. Use "
                "the num_teachers and num_students it was saved with, or resume with resize_on_resume=true."
            )
        for name in self if names is None else names:
            own = os.path.join(folder, name)
            if not os.path.isfile(path := os.path.join(own, ADAPTER_FILE)):
                raise ValueError(f"The adapter file {path} is missing; the population in {folder} is incomplete.")
            config, factors = read_adapter(own)
            if problem := misfit(config, factors, self.factors(name)):
                raise ValueError(f"{own} does not fit this population: {problem}")
            yield members[name], factors

    def _founder(self, name: str, learning_rate: float | Mapping[str, float]) -> Member:
        role, slot = name.rsplit("_", 1)
        role = "shared" if role == "agent" else role
        if isinstance(learning_rate, Mapping):
            key = name if name in learning_rate else "student" if role == "shared" else role
            if key not in learning_rate:
                raise ValueError(f"learning_rate={learning_rate} has none for {name!r}: add its name or {key!r}.")
            learning_rate = learning_rate[key]
        return Member(id=name, role=role, slot=int(slot), learning_rate=learning_rate)

    def _add_adapters(self, model: PreTrainedModel, template: LoraConfig, names: list[str]) -> None:
        devices = [model.device] if model.device.type == "cuda" else []  # whose random states stay the caller's
        own = torch.default_generator if model.device.type == "cpu" else torch  # `torch` seeds the GPUs, too
        template = copy.deepcopy(template)
        template.task_type = template.task_type or TaskType.CAUSAL_LM
        layers: dict[str, LoraLayer] = {}
        made: dict[tuple[LoraLayer, str], Adapters] = defaultdict(Adapters)
        for name in names:
            with torch.random.fork_rng(devices=devices):
                own.manual_seed(zlib.crc32(f"{self.seed}:{'founders' if self.shared_init else name}".encode()))
                if name == names[0]:
                    self.model = get_peft_model(model, template, adapter_name=name)
                    layers = {path: one for path, one in model.named_modules() if isinstance(one, LoraLayer)}
                    check_linear(layers)
                else:  # as PEFT's add_adapter, which looks through the whole model several times for each adapter
                    self.lora_configs[name] = config = copy.deepcopy(template)
                    for path, layer in layers.items():
                        layer.update_layer(name, config.r, config.lora_alpha, config, target_name=path)
                        for matrix in (layer.lora_A[name], layer.lora_B[name]):
                            if matrix.get_parameter("weight").dtype.itemsize < 4:
                                matrix.float()
            for layer in layers.values():
                for part in ("lora_A", "lora_B", "lora_dropout"):  # PEFT would visit these for each adapter to come
                    made[layer, part][name] = getattr(layer, part).pop(name)
        for (layer, part), adapters in made.items():
            setattr(layer, part, adapters)
        for config in self.lora_configs.values():
            if isinstance(config.target_modules, set):  # in another order in every process, and so in the files
                config.target_modules = sorted(config.target_modules)


class Adapters(nn.ModuleDict):
    """What a layer holds for each adapter. A change of mode does not visit them: they are the same in training and in
    evaluation, and Trainer calls `train()` for each micro-batch."""

    def train(self, mode: bool = True) -> "Adapters":
        self.training = mode
        return self
