"""``windlass install``: the scheduler, the controllers and the CRDs into a cluster, without helm."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windlass.api.errors import WindlassError
from windlass.cli import errors
from windlass.cli.invocation import Invocation
from windlass.cli.options import standard
from windlass.cli.output.formats import emit
from windlass.cli.text import plural

if TYPE_CHECKING:
    from windlass.cli.install.bind_guard import Proof
    from windlass.cli.install.objects import InstallOptions
    from windlass.cli.install.remove import RemovalPlan

FORMATS = ("json", "yaml", "name")


@click.command("install")
@click.option("--image", metavar="IMAGE", help="Image of Windlass (default: windlass:VERSION).")
@click.option("--replicas", type=click.IntRange(1, 5), metavar="N", help="Instances of each (default: 2).")
@click.option(
    "--scheduler-name",
    "names",
    multiple=True,
    metavar="NAME",
    help="Schedule pods that name it; may be repeated (default: windlass).",
)
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Scheduler configuration.")
@click.option(
    "--bind-guard/--no-bind-guard",
    default=None,
    help="Be asked before others bind pods: a webhook (default: no).",
)
@click.option(
    "--gpu-sharing/--no-gpu-sharing",
    default=None,
    help="Have pods hold the cards of device plug-ins that are shared (default: no).",
)
@click.option(
    "--reset", is_flag=True, help="What is not named goes back to its default, whatever is installed."
)
@click.option("--force-conflicts", is_flag=True, help="Set back what others have changed in these objects.")
@click.option("--crds/--no-crds", default=True, help="Also the CustomResourceDefinitions (default).")
@click.option("--wait", type=click.IntRange(1), metavar="SECONDS", help="Wait until all instances are ready.")
@click.option(
    "--adopt",
    type=click.Choice(("volcano", "kai", "kueue")),
    help="Take queues over from what schedules or queues now, one by one while it runs.",
)
@click.option(
    "-q", "--queue", "queues", multiple=True, metavar="NAME", help="With --adopt: take this queue over."
)
@click.option(
    "--finish", is_flag=True, help="With --adopt: all queues are taken over; stop the other scheduler."
)
@click.option("--dry-run", is_flag=True, help="Let the server check everything, write nothing.")
@standard(formats=FORMATS)
def command(
    invocation: Invocation,
    image: str | None,
    replicas: int | None,
    names: tuple[str, ...],
    config: Path | None,
    crds: bool,
    wait: int | None,
    dry_run: bool,
    adopt: str | None,
    queues: tuple[str, ...],
    finish: bool,
    bind_guard: bool | None,
    gpu_sharing: bool | None,
    reset: bool,
    force_conflicts: bool,
) -> int:
    """Install Windlass in a cluster, or update it.

    Where it is installed already, what is not named stays as it is: image, instances, scheduler names, configuration,
    bind guard, sharing of cards. The server checks every object before the first is written.

    With -o yaml the objects are only printed: for kubectl apply or a repository.

    With --adopt volcano or kai a cluster that runs that scheduler is looked at and reported on, and Windlass is put
    beside it; queues named by -q are taken over, without touching their pods. With --adopt kueue the queues of Kueue
    are made queues of Windlass, and Kueue admits nothing more to those named by -q. windlass uninstall --adopted goes
    back.
    """
    from windlass.cli.install import objects

    namespace = invocation.namespace or objects.NAMESPACE
    if image is not None and not image.strip():
        raise WindlassError("WL-USE-400", "--image is empty", remedies=("leave it out for the default",))
    told = objects.InstallOptions(
        namespace=namespace,
        image=image or "",
        replicas=replicas or 0,
        scheduler_names=names,
        configuration=_configuration(config, invocation.warn),
        crds=crds,
        gpu_sharing=bool(gpu_sharing),
    )
    _check_adoption(adopt, queues, finish)
    if adopt == "kueue":
        need_cluster(invocation)
        return _translate(invocation, queues, wait=wait, dry_run=dry_run)
    if invocation.structured:
        _check_printed(adopt)
        return _print(invocation, replace(told, proof=_proof(invocation, told) if bind_guard else None))
    need_cluster(invocation)
    options = _settled(invocation, told, adopt or "", bind_guard, gpu_sharing, reset=reset)
    run = InstallRun(invocation, dry_run=dry_run, force=force_conflicts, wait=wait)
    return _alone(run, options) if adopt is None else _take_over(run, adopt, options, queues, finish=finish)


def _check_adoption(adopt: str | None, queues: tuple[str, ...], finish: bool) -> None:
    """Raises :class:`WindlassError` where the options contradict one another."""
    if adopt is None and (queues or finish):
        raise WindlassError(
            "WL-USE-400",
            "--queue and --finish need --adopt",
            remedies=("windlass install --adopt volcano --queue NAME",),
        )
    if adopt == "kueue" and finish:
        raise WindlassError(
            "WL-USE-400",
            "--adopt kueue stops nothing: Kueue places no pods",
            remedies=("leave out --finish",),
        )


def _settled(
    invocation: Invocation,
    told: InstallOptions,
    adopt: str,
    bind_guard: bool | None,
    gpu_sharing: bool | None,
    *,
    reset: bool,
) -> InstallOptions:
    """What is to be installed, given what is there; tells what stays as it is. Raises :class:`WindlassError` where
    somebody else would be in the way."""
    from windlass.cli.install import adopt as install_adopt
    from windlass.cli.install import installed_settings, objects

    objects.refuse_helms(invocation.client, told)
    installed_settings.refuse_second(invocation.client, told.namespace)
    there = installed_settings.as_installed(invocation.client, told.namespace)
    install_adopt.check_alone(there, adopt)
    if not adopt:
        install_adopt.check_other_schedulers(invocation.client)
    options = _guarded(invocation, told if reset else installed_settings.keep(told, there), there, bind_guard)
    options = _sharing(invocation, options, gpu_sharing)
    unsaid = {"guard": bind_guard is None, "sharing": gpu_sharing is None}
    if not reset and (words := installed_settings.kept_words(told, there, **unsaid)):
        invocation.note(f"kept as installed: {words} (--reset: the defaults)")
    return options


def tell_held(invocation: Invocation, *, going: bool) -> None:
    """``going``: nobody shares cards from now on. Say which are held nevertheless."""
    from windlass.cli.install import gpu_sharing

    if going and (count := len(gpu_sharing.held(invocation.client) or ())):
        cards = f"{plural(count, 'card')} {'is' if count == 1 else 'are'}"
        invocation.note(f"{cards} still held in namespace {gpu_sharing.SPACE}, for the pods that share them")


def _check_printed(adopt: str | None) -> None:
    """Raises ``WL-USE-400`` where objects alone are not what was asked for."""
    if adopt is not None:
        raise WindlassError(
            "WL-USE-400",
            f"-o prints objects, and --adopt {adopt} is more than objects: it asks a cluster, step by step",
            remedies=(f"windlass install --adopt {adopt} --dry-run", "windlass install -o yaml"),
        )


def _guarded(
    invocation: Invocation, options: InstallOptions, there: InstallOptions, asked: bool | None
) -> InstallOptions:
    """``wishes`` with a bind guard that lasts, or without one. ``asked``: None where nothing is said of it."""
    if not (options.proof is not None if asked is None else asked):
        return replace(options, proof=None)
    return replace(options, proof=_proof(invocation, replace(options, proof=there.proof)))


def _sharing(invocation: Invocation, options: InstallOptions, asked: bool | None) -> InstallOptions:
    """``wishes`` with cards held or not, by the means that the server has. ``asked``: None where nothing is said."""
    from windlass.cli.install import gpu_sharing

    options = replace(options, gpu_sharing=options.gpu_sharing if asked is None else asked)
    if not options.gpu_sharing or gpu_sharing.can_inject(invocation.client):
        return options
    invocation.note(
        f"this server has no {gpu_sharing.POLICIES.plural}: templates of pods that share a card take "
        "NVIDIA_VISIBLE_DEVICES from their annotation windlass.dev/visible-devices"
    )
    return replace(options, inject=False)


def _alone(run: InstallRun, options: InstallOptions) -> int:
    """Install, and take away what is not wanted any more."""
    from windlass.cli.install import objects, remove

    client = run.invocation.client
    plan = [] if options.proof is not None else remove.of_guard(options.namespace)
    plan += [] if options.gpu_sharing else remove.of_sharing(client, options.namespace)
    run.put(objects.objects(options), plan)
    tell_held(run.invocation, going=not options.gpu_sharing)
    run.until_ready(options.namespace)
    return errors.OK


@dataclass(frozen=True, slots=True)
class InstallRun:
    """How objects are put into the cluster. ``wait``: seconds, or not at all."""

    invocation: Invocation
    dry_run: bool = False
    force: bool = False
    wait: int | None = None

    @property
    def suffix(self) -> str:
        return " (dry run)" if self.dry_run else ""

    def put(self, wanted: Sequence[dict[str, Any]], plan: Sequence[RemovalPlan] = ()) -> None:
        """All or, where the server refuses one of them, none; then take away what is ``leaving``. Tell of each."""
        from windlass.cli.install import deploy, objects, remove

        client, clock = self.invocation.client, self.invocation.clock
        deploy.rehearse(client, wanted, plan, force=self.force)
        for obj, action in deploy.apply(client, wanted, dry_run=self.dry_run, clock=clock):
            became, _, whose = action.partition(":")
            self.invocation.out.line(f"{objects.title(obj)} {became}{self.suffix}")
            if whose and obj["kind"] != "Namespace":
                self.invocation.note(f"{objects.title(obj)} was made by others, and stays as it is")
        for name in remove.delete(client, plan, dry_run=self.dry_run):
            self.invocation.out.line(f"{name} deleted{self.suffix}")

    def until_ready(self, namespace: str) -> None:
        """Return when all instances are ready, if that was asked for."""
        from windlass.cli.install import deploy

        if self.wait is None or self.dry_run:
            return
        client, clock, tell = self.invocation.client, self.invocation.clock, self.invocation.out.line
        seconds = float(self.wait)
        deploy.until_available(client, namespace, clock, seconds, lambda name: tell(f"{name} is ready"))


def _print(invocation: Invocation, options: InstallOptions) -> int:
    from windlass.cli.install import objects

    wanted = objects.objects(options)
    whole = {"apiVersion": "v1", "kind": "List", "items": wanted}
    emit(invocation, whole, names=[objects.title(obj) for obj in wanted])
    return errors.OK


def _proof(invocation: Invocation, options: InstallOptions) -> Proof:
    """What the bind guard has, if it lasts; else a new one."""
    from windlass.cli.install import bind_guard, objects

    now = datetime.datetime.fromtimestamp(invocation.clock.now(), datetime.UTC)
    kept = options.proof
    if kept is None and invocation.target.remote and not invocation.structured:
        secret = invocation.client.find(objects.SECRETS, objects.GUARD, options.namespace)
        kept = bind_guard.kept_proof(secret)
    if kept is not None and bind_guard.lasts(kept, now):
        return kept
    return bind_guard.make_proof(options.namespace, now)


def _take_over(
    run: InstallRun, kind: str, options: InstallOptions, queues: tuple[str, ...], *, finish: bool
) -> int:
    """Report; install beside; mark queues; with ``finish`` stop the other scheduler. Every step may be repeated."""
    from windlass.cli.install import adopt

    invocation = run.invocation
    client, clock, tell = invocation.client, invocation.clock, invocation.out.line
    report = adopt.PREFLIGHTS[kind](client)
    invocation.out.write(adopt.report_text(report))
    adopt.check(report, queues, finish=finish)
    seconds = float(run.wait or adopt.PATIENCE_SECONDS)
    beside = adopt.wishes_beside(options, report)
    if not (finish and report.stopped):
        run.put(adopt.wanted_objects(client, beside))
    if run.dry_run:
        return errors.OK
    run.until_ready(options.namespace)
    if queues:
        wanted = report.below(queues)
        adopt.mark(client, report, wanted, adopted=True)
        adopt.until_handed(report, wanted, clock, seconds=seconds, back=False, tell=tell)
    if finish:
        for name in adopt.stop(client, report, clock, seconds=seconds):
            tell(f"{name} scaled to 0")
        run.put(adopt.wanted_objects(client, adopt.wishes_alone(beside, report)))
        tell(f"{report.title} decides nothing any more; windlass uninstall --adopted goes back")
    return errors.OK


def _translate(invocation: Invocation, queues: tuple[str, ...], *, wait: int | None, dry_run: bool) -> int:
    """Kueue's queues as queues of Windlass: printed, or made; those of ``queues`` are handed over."""
    from windlass.cli.install import adopt, adopt_kueue

    found = adopt_kueue.read(invocation.client)
    if invocation.structured:
        items = [*found.queues, *found.namespaces, *found.groups]
        names = [f"{obj['kind'].lower()}/{obj['metadata']['name']}" for obj in items]
        emit(invocation, {"apiVersion": "v1", "kind": "List", "items": items}, names=names)
        for note in found.notes:
            invocation.note(f"note: {note}")
        return errors.OK
    invocation.out.write(adopt_kueue.text(found))
    invocation.out.write("\n" + adopt_kueue.standing(invocation.client))
    adopt_kueue.check(invocation.client, queues)
    for words in adopt_kueue.apply(invocation.client, found, dry_run=dry_run):
        invocation.out.line(words + (" (dry run)" if dry_run else ""))
    for name in () if dry_run else queues:
        seconds = float(wait or adopt.PATIENCE_SECONDS)
        adopt_kueue.hold(invocation.client, name, invocation.clock, seconds=seconds, tell=invocation.out.line)
    return errors.OK


def need_cluster(invocation: Invocation, command: str = "install") -> None:
    """Raises :class:`WindlassError` where no cluster is named: a box has all of it already."""
    if invocation.target.remote:
        return
    raise WindlassError(
        "WL-USE-400",
        "no cluster is named",
        evidence="this box's own control plane needs no installation",
        remedies=(
            f"windlass --context NAME {command}",
            *(("windlass install -o yaml",) if command == "install" else ()),
        ),
    )


def _configuration(file: Path | None, warn: Callable[[str], None]) -> str:
    """The text, once it is understood; ``warn`` is told what in it is not used. Raises :class:`WindlassError`."""
    if file is None:
        return ""
    from windlass.model.cluster.engine_factory import make_engine
    from windlass.scheduler.configuration import parse, read_text

    text = read_text(str(file))
    parsed = parse(text, str(file))
    for note in parsed.notes:
        warn(f"{file}: {note}")
    make_engine(parsed.config, lambda note: warn(f"{file}: {note}"))
    return text
