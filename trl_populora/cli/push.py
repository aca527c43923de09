"""`populora push`: uploads a run to the Hugging Face Hub: the population, one member, or the tables of its rounds.

The Hub is asked with the token of `hf auth login`, or the one in HF_TOKEN.
"""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", help="output_dir of a run, or a checkpoint in it")
    parser.add_argument("--to", metavar="USER/REPO", help="repository (default: the run's name in your namespace)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--member", metavar="NAME", help="only this member, with its adapter at the root")
    what.add_argument("--dataset", action="store_true", help="the tables of the rounds, as a dataset repository")
    what.add_argument(
        "--checkpoint",
        action="store_true",
        help="also the newest checkpoint (or the one that is named), to resume from",
    )
    parser.add_argument("--private", action="store_true", default=None, help="make the repository private")
    parser.add_argument("--revision", metavar="BRANCH", help="branch to push to")
    parser.add_argument("--base", help="Hub id of the base model (default: the recorded one)")


def run(options: argparse.Namespace) -> int:
    from ..run_files.layout import checkpoints
    from ..run_files.run import open_run

    # The tables of the rounds need no members, and a run that has not ended is told which checkpoint to push.
    if not options.dataset and not checkpoints(options.folder):
        open_run(options.folder, base=options.base)

    from ..hub import push_dataset, push_member, push_population
    from ..hub.contents import newest_checkpoint

    where = {"private": options.private, "revision": options.revision}
    if options.dataset:
        push = push_dataset(options.folder, options.to, base=options.base, **where)
    elif options.member:
        push = push_member(options.folder, options.member, options.to, base=options.base, **where)
    else:
        newest = newest_checkpoint(open_run(options.folder, base=options.base)) if options.checkpoint else None
        push = push_population(options.folder, options.to, base=options.base, checkpoint=newest, **where)
    print(f"Pushed: {push.send()}")
    return 0
