"""``windlass install``: install scheduler, controllers and CRDs in a cluster, without helm."""

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
    from windlass.cli.install.bind_guard import GuardCredentials
    from windlass.cli.install.objects import InstallOptions
    from windlass.cli.install.remove import RemovalPlan

FORMATS = ("json", "yaml", "name")


@click.command("install")
@click.option("--image", metavar="IMAGE", help="Image of Windlass (default: windlass:VERSION).")
@click.option(
    "--replicas", type=click.IntRange(1, 5), metavar="N", help="Instances of each component (default: 2)."
)
@click.option(
    "--scheduler-name",
    "names",
    multiple=True,
    metavar="NAME",
    help="Schedule pods with this schedulerName; may be repeated (default: windlass).",
)
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Scheduler configuration.")
@click.option(
    "--bind-guard/--no-bind-guard",
    default=None,
    help="Install a webhook that checks bindings by other schedulers (default: no).",
)
@click.option(
    "--gpu-sharing/--no-gpu-sharing",
    default=None,
    help="Share GPUs of device plugins by means of reservation pods (default: no).",
)
@click.option("--reset", is_flag=True, help="Reset all options that are not given to their defaults.")
@click.option("--force-conflicts", is_flag=True, help="Overwrite changes of other clients in these objects.")
@click.option("--crds/--no-crds", default=True, help="Include the CustomResourceDefinitions (default).")
@click.option("--wait", type=click.IntRange(1), metavar="SECONDS", help="Wait until all instances are ready.")
@click.option(
    "--adopt",
    type=click.Choice(("volcano", "kai", "kueue")),
    help="Take over queues from this scheduler, one by one, while it runs.",
)
@click.option(
    "-q", "--queue", "queues", multiple=True, metavar="NAME", help="With --adopt: take over this queue."
)
@click.option(
    "--finish", is_flag=True, help="With --adopt: stop the other scheduler, after all queues are taken over."
)
@click.option("--dry-run", is_flag=True, help="Let the server check all objects, and write nothing.")
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

    Options of an existing installation stay unless given: image, instances, scheduler names, configuration, bind
    guard, GPU sharing. The server checks every object before the first is written.

    With -o yaml the objects are only printed, for kubectl apply or a repository.

    With --adopt volcano or kai the command reports on a cluster with that scheduler, and installs Windlass next to it.
    Queues given by -q are taken over, without touching their pods. With --adopt kueue the queues of Kueue become queues
    of Windlass, and Kueue admits nothing more to those given by -q. windlass uninstall --adopted reverts this.
    """
    from windlass.cli.install import objects

    namespace = invocation.namespace or objects.NAMESPACE
    if image is not None and not image.strip():
        raise WindlassError("WL-USE-400", "--image is empty", remedies=("omit it   (for the default)",))
    given = objects.InstallOptions(
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
        return _print(invocation, replace(given, proof=_proof(invocation, given) if bind_guard else None))
    need_cluster(invocation)
    options = _settled(invocation, given, adopt or "", bind_guard, gpu_sharing, reset=reset)
    run = InstallRun(invocation, dry_run=dry_run, force=force_conflicts, wait=wait)
    return _alone(run, options) if adopt is None else _take_over(run, adopt, options, queues, finish=finish)


def _check_adoption(adopt: str | None, queues: tuple[str, ...], finish: bool) -> None:
    """Raise :class:`WindlassError` if options contradict each other."""
    if adopt is None and (queues or finish):
        raise WindlassError(
            "WL-USE-400",
            "--queue and --finish need --adopt",
            remedies=("windlass install --adopt volcano --queue NAME",),
        )
    if adopt == "kueue" and finish:
        raise WindlassError(
            "WL-USE-400",
            "--finish does not work with --adopt kueue, as Kueue is not a scheduler of pods",
            remedies=("omit --finish",),
        )


def _settled(
    invocation: Invocation,
    given: InstallOptions,
    adopt: str,
    bind_guard: bool | None,
    gpu_sharing: bool | None,
    *,
    reset: bool,
) -> InstallOptions:
    """Return the options to install, given what is installed; print what stays as it is.

    Raises :class:`WindlassError` if another scheduler or installation is an obstacle.
    """
    from windlass.cli.install import adopt as install_adopt
    from windlass.cli.install import installed_settings, objects

    objects.reject_helm(invocation.client, given)
    installed_settings.reject_second(invocation.client, given.namespace)
    installed = installed_settings.as_installed(invocation.client, given.namespace)
    install_adopt.check_alone(installed, adopt)
    if not adopt:
        install_adopt.check_other_schedulers(invocation.client)
    options = _guarded(
        invocation, given if reset else installed_settings.keep(given, installed), installed, bind_guard
    )
    options = _sharing(invocation, options, gpu_sharing)
    not_given = {"guard": bind_guard is None, "sharing": gpu_sharing is None}
    if not reset and (unchanged := installed_settings.kept_text(given, installed, **not_given)):
        invocation.note(f"unchanged options: {unchanged} (--reset sets the defaults)")
    return options


def report_reserved(invocation: Invocation, *, disabled: bool) -> None:
    """Print how many GPUs are still reserved, if GPU sharing is now disabled (``going``)."""
    from windlass.cli.install import gpu_sharing

    if disabled and (count := len(gpu_sharing.reservation_pods(invocation.client) or ())):
        gpus = f"{plural(count, 'GPU')} {'is' if count == 1 else 'are'}"
        invocation.note(
            f"{gpus} still reserved in namespace {gpu_sharing.RESERVATION_NAMESPACE}, for the pods that share them"
        )


def _check_printed(adopt: str | None) -> None:
    """Raise ``WL-USE-400`` if objects alone are not sufficient for the request."""
    if adopt is not None:
        raise WindlassError(
            "WL-USE-400",
            f"-o does not work with --adopt {adopt}, which changes a running cluster step by step",
            remedies=(f"windlass install --adopt {adopt} --dry-run", "windlass install -o yaml"),
        )


def _guarded(
    invocation: Invocation, options: InstallOptions, installed: InstallOptions, requested: bool | None
) -> InstallOptions:
    """Return ``options`` with a valid bind guard, or without one.

    :param asked: ``None`` if no option for it was given
    """
    if not (options.proof is not None if requested is None else requested):
        return replace(options, proof=None)
    return replace(options, proof=_proof(invocation, replace(options, proof=installed.proof)))


def _sharing(invocation: Invocation, options: InstallOptions, requested: bool | None) -> InstallOptions:
    """Return ``options`` with or without GPU sharing, by the means that the server has.

    :param asked: ``None`` if no option for it was given
    """
    from windlass.cli.install import gpu_sharing

    options = replace(options, gpu_sharing=options.gpu_sharing if requested is None else requested)
    if not options.gpu_sharing or gpu_sharing.can_inject(invocation.client):
        return options
    invocation.note(
        f"this server has no {gpu_sharing.POLICIES.plural}: templates of pods that share a GPU must set "
        "NVIDIA_VISIBLE_DEVICES from their annotation windlass.dev/visible-devices"
    )
    return replace(options, inject=False)


def _alone(run: InstallRun, options: InstallOptions) -> int:
    """Install, and delete what is no longer needed."""
    from windlass.cli.install import objects, remove

    client = run.invocation.client
    plan = [] if options.proof is not None else remove.guard_plans(options.namespace)
    plan += [] if options.gpu_sharing else remove.sharing_plans(client, options.namespace)
    run.put(objects.objects(options), plan)
    report_reserved(run.invocation, disabled=not options.gpu_sharing)
    run.until_ready(options.namespace)
    return errors.OK


@dataclass(frozen=True, slots=True)
class InstallRun:
    """Apply of objects to the cluster. ``wait``: timeout in seconds, or ``None``."""

    invocation: Invocation
    dry_run: bool = False
    force: bool = False
    wait: int | None = None

    @property
    def suffix(self) -> str:
        return " (dry run)" if self.dry_run else ""

    def put(self, wanted: Sequence[dict[str, Any]], plan: Sequence[RemovalPlan] = ()) -> None:
        """Apply all objects, or none if the server rejects one; then delete ``plan``.

        Print each.
        """
        from windlass.cli.install import deploy, objects, remove

        client, clock = self.invocation.client, self.invocation.clock
        deploy.rehearse(client, wanted, plan, force=self.force)
        for obj, action in deploy.apply(client, wanted, dry_run=self.dry_run, clock=clock):
            result, _, other_owner = action.partition(":")
            self.invocation.out.line(f"{objects.title(obj)} {result}{self.suffix}")
            if other_owner and obj["kind"] != "Namespace":
                self.invocation.note(f"{objects.title(obj)} has another owner, and is not changed")
        for name in remove.delete(client, plan, dry_run=self.dry_run):
            self.invocation.out.line(f"{name} deleted{self.suffix}")

    def until_ready(self, namespace: str) -> None:
        """Return when all instances are ready, if that was requested."""
        from windlass.cli.install import deploy

        if self.wait is None or self.dry_run:
            return
        client, clock, tell = self.invocation.client, self.invocation.clock, self.invocation.out.line
        seconds = float(self.wait)
        deploy.wait_until_available(client, namespace, clock, seconds, lambda name: tell(f"{name} is ready"))


def _print(invocation: Invocation, options: InstallOptions) -> int:
    from windlass.cli.install import objects

    wanted = objects.objects(options)
    whole = {"apiVersion": "v1", "kind": "List", "items": wanted}
    emit(invocation, whole, names=[objects.title(obj) for obj in wanted])
    return errors.OK


def _proof(invocation: Invocation, options: InstallOptions) -> GuardCredentials:
    """Return the credentials of the bind guard if they are valid for long; else new ones."""
    from windlass.cli.install import bind_guard, objects

    now = datetime.datetime.fromtimestamp(invocation.clock.now(), datetime.UTC)
    stored = options.proof
    if stored is None and invocation.target.remote and not invocation.structured:
        secret = invocation.client.find(objects.SECRETS, objects.GUARD, options.namespace)
        stored = bind_guard.stored_credentials(secret)
    if stored is not None and bind_guard.is_valid_long(stored, now):
        return stored
    return bind_guard.new_credentials(options.namespace, now)


def _take_over(
    run: InstallRun, kind: str, options: InstallOptions, queues: tuple[str, ...], *, finish: bool
) -> int:
    """Report, install, mark queues, and with ``finish`` stop the other scheduler.

    Every step may be repeated.
    """
    from windlass.cli.install import adopt

    invocation = run.invocation
    client, clock, tell = invocation.client, invocation.clock, invocation.out.line
    report = adopt.PREFLIGHTS[kind](client)
    invocation.out.write(adopt.report_text(report))
    adopt.check(report, queues, finish=finish)
    seconds = float(run.wait or adopt.TIMEOUT_SECONDS)
    next_to = adopt.options_next_to(options, report)
    if not (finish and report.stopped):
        run.put(adopt.wanted_objects(client, next_to))
    if run.dry_run:
        return errors.OK
    run.until_ready(options.namespace)
    if queues:
        wanted = report.below(queues)
        adopt.mark(client, report, wanted, adopted=True)
        adopt.wait_until_handed_over(report, wanted, clock, seconds=seconds, back=False, tell=tell)
    if finish:
        for name in adopt.stop(client, report, clock, seconds=seconds):
            tell(f"{name} scaled to 0")
        run.put(adopt.wanted_objects(client, adopt.options_alone(next_to, report)))
        tell(f"{report.title} schedules nothing any more; to go back: windlass uninstall --adopted")
    return errors.OK


def _translate(invocation: Invocation, queues: tuple[str, ...], *, wait: int | None, dry_run: bool) -> int:
    """Print or create Kueue's queues as queues of Windlass; hand over those of ``queues``."""
    from windlass.cli.install import adopt, adopt_kueue

    translation = adopt_kueue.read(invocation.client)
    if invocation.structured:
        items = [*translation.queues, *translation.namespaces, *translation.groups]
        names = [f"{obj['kind'].lower()}/{obj['metadata']['name']}" for obj in items]
        emit(invocation, {"apiVersion": "v1", "kind": "List", "items": items}, names=names)
        for note in translation.notes:
            invocation.note(f"note: {note}")
        return errors.OK
    invocation.out.write(adopt_kueue.text(translation))
    invocation.out.write("\n" + adopt_kueue.queue_states(invocation.client))
    adopt_kueue.check(invocation.client, queues)
    for text in adopt_kueue.apply(invocation.client, translation, dry_run=dry_run):
        invocation.out.line(text + (" (dry run)" if dry_run else ""))
    for name in () if dry_run else queues:
        seconds = float(wait or adopt.TIMEOUT_SECONDS)
        adopt_kueue.hold(invocation.client, name, invocation.clock, seconds=seconds, tell=invocation.out.line)
    return errors.OK


def need_cluster(invocation: Invocation, command: str = "install") -> None:
    """Raise :class:`WindlassError` if no cluster is named.

    Single-node mode needs no installation.
    """
    if invocation.target.remote:
        return
    raise WindlassError(
        "WL-USE-400",
        "no cluster is given",
        evidence="the control plane of this machine needs no installation",
        remedies=(
            f"windlass --context NAME {command}",
            *(("windlass install -o yaml",) if command == "install" else ()),
        ),
    )


def _configuration(file: Path | None, warn: Callable[[str], None]) -> str:
    """Return the text of a valid configuration. Raises :class:`WindlassError`.

    ``warn`` receives what is ignored in it.
    """
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
