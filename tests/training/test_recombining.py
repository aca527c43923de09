"""Recombination in a run: when it happens, what it leaves as it was, and that a resumed run has it, too."""

import pytest

from tests.training.test_resume import files, outcome
from trl_populora.evolution import cosine


@pytest.mark.slow
def test_members_move_to_their_mean_between_rounds_and_not_after_the_last(make_trainer):
    seen = []
    trainer = make_trainer(max_steps=3, recombination_interval=1, on_round=lambda summary: seen.append(summary))
    alike, end = [], trainer.callback_handler.on_step_end

    def on_step_end(args, state, control):
        result = end(args, state, control)
        pairs = [[trainer.population.factors(name) for name in trainer.population.names(role)] for role in ROLES]
        alike.append([round(cosine(*pair), 4) for pair in pairs])
        return result

    trainer.callback_handler.on_step_end = on_step_end
    trainer.train()
    everybody = tuple(trainer.population)
    assert [one.recombined for one in seen] == [everybody, everybody, ()]
    assert alike[:2] == [[1, 1], [1, 1]] and max(alike[2]) < 1
    assert not trainer.lineage and {member.version for member in trainer.population.values()} == {0}
    states = [trainer.optimizer.state[p] for name in trainer.population for p in trainer.population.parameters(name)]
    assert {float(state["step"]) for state in states} == {3.0}  # moments are kept


ROLES = ("teacher", "student")


@pytest.mark.slow  # test_resume.py resumes others
def test_a_run_that_recombines_resumes_exactly(make_trainer):
    settings = dict(max_steps=5, save_strategy="steps", save_steps=2, evolution_interval=3, recombination_interval=2)
    whole = make_trainer(**settings)
    whole.train()
    wanted, wanted_files = outcome(whole), files(whole.args.output_dir)
    everybody = list(whole.population)
    assert [one["recombined"] for one in wanted_files[0]] == [[], everybody, [], everybody, []] and wanted["lineage"]
    again = make_trainer(noise=0.5, **settings)
    again.train(resume_from_checkpoint=f"{whole.args.output_dir}/checkpoint-2")
    assert outcome(again) == wanted and files(again.args.output_dir) == wanted_files


@pytest.mark.parametrize("single", [{"num_teachers": 1, "num_students": 1}, {"num_teachers": 0, "num_students": 1}])
def test_without_two_of_a_role_there_is_no_mean(config, single):
    with pytest.raises(ValueError, match="recombination_interval=3 with .*two members of a role"):
        config(recombination_interval=3, **single)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"evolution_interval": 2}, "recombination_interval=4 is a multiple of evolution_interval=2"),
        ({"evolution_interval": 4}, "recombination_interval=4 is a multiple of evolution_interval=4"),
        ({"recombination_roles": "pupils"}, "recombination_roles='pupils' is unknown. Choose from"),
        ({"recombination_roles": "teachers", "num_teachers": 1}, "recombination_roles='teachers', .*two members of a"),
    ],
)
def test_settings_without_a_recombination_are_refused(config, settings, words):
    with pytest.raises(ValueError, match=words):
        config(recombination_interval=4, **settings)


@pytest.mark.slow
def test_only_named_roles_recombine_and_none_in_the_round_of_a_replacement(make_trainer):
    seen = []
    settings = dict(max_steps=5, recombination_interval=1, recombination_roles="students", evolution_interval=2)
    trainer = make_trainer(**settings, on_round=seen.append)
    trainer.train()
    students = tuple(trainer.population.students)
    assert [one.recombined for one in seen] == [students, (), students, (), ()]
    assert [bool(one.events) for one in seen] == [False, True, False, True, False]


@pytest.mark.slow
def test_islands_are_checked_and_recombine_apart_without_evolution(config, make_trainer):
    with pytest.raises(ValueError, match="islands=2 does not divide 2 members"):
        config(recombination_interval=1, evolution_kwargs={"islands": 2})
    shape = dict(num_teachers=4, num_students=4)
    trainer = make_trainer(max_steps=2, recombination_interval=1, evolution_kwargs={"islands": 2}, **shape)
    trainer.train()
    own = [trainer.population.factors(name) for name in trainer.population.students]
    assert min(cosine(*own[:2]), cosine(*own[2:])) > 0.8 > cosine(*own[1:3])


@pytest.mark.slow
def test_who_was_reset_in_the_round_takes_no_part_and_others_return_to_the_mean(make_trainer):
    """A gradient that is not finite, after the first mean and in the round of the second."""
    trainer = make_trainer(max_steps=4, recombination_interval=1)
    kept, last = {}, trainer.callback_handler.on_step_end

    def on_step_end(args, state, control):
        if state.global_step == 2:
            kept["before"] = [p.detach().clone() for p in trainer.population.parameters("student_1")]
            trainer.population.parameters("student_1")[0].data.fill_(float("nan"))
            trainer.guard.inspect()
        result = last(args, state, control)
        kept[state.global_step] = [p.detach().clone() for p in trainer.population.parameters("student_1")]
        return result

    rounds = []
    trainer.on_round = rounds.append
    trainer.callback_handler.on_step_end = on_step_end
    trainer.train()
    assert "student_1" in rounds[0].recombined and "student_1" in rounds[2].recombined
    assert rounds[1].recombined == ("teacher_0", "teacher_1")  # two students, of whom one fails: no mean
    assert all(a.equal(b) for a, b in zip(kept[1], kept[2])) and not all(
        a.equal(b) for a, b in zip(kept["before"], kept[2])
    )


def test_a_negative_interval_is_refused(config):
    with pytest.raises(ValueError, match="recombination_interval"):
        config(recombination_interval=-1)
