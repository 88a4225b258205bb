"""Expose an engine through a reverse proxy on a named host, and take it away again. Pure.

The configuration is written, tested by the proxy itself, and loaded; then it is asked with and without the key. What
fails is taken back. Only files that sparktop wrote are changed or removed.
"""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import field, replace

from sparktop import sanitise
from sparktop.dataclass import dataclass
from sparktop.engines.listening import is_loopback, listen_host
from sparktop.engines.ranks import find, is_alive
from sparktop.model.engine import Engine
from sparktop.model.fleet import FleetState, NodeView
from sparktop.model.operation import Command, Privilege
from sparktop.model.request import Request, Risk
from sparktop.model.survey import FileText, Output, PrivilegesQuestion, Question, Survey
from sparktop.operate.acts.checks import CheckExposed
from sparktop.operate.acts.remote import Remote
from sparktop.operate.container.remote_file import FOR_ALL, RemoteFile, remove
from sparktop.operate.plan.start_steps import with_rollback
from sparktop.operate.refused import Refused, refused_options
from sparktop.operate.secrets.sudo import require_root_for, sudo_notes
from sparktop.operate.serve.proxy_config import (
    CERTBOT,
    HEAD,
    Proxy,
    Site,
    Upstream,
    checked_key,
    key_text,
    server_name,
    site_text,
    upstream,
)
from sparktop.operate.serve.sites import sites_question, statements
from sparktop.operate.serve.unit import PRINT
from sparktop.operate.step.plan import Difference, OnFailure, Plan, Step

REMOVE = "remove"
_ENABLED = "/etc/nginx/sites-enabled"
_CADDYFILE = "/etc/caddy/Caddyfile"
_IMPORT = "import /etc/caddy/sparktop/*.caddy"
_FABRIC_MBPS = 100_000
"""A link that fast is the cable between two Sparks: nobody else is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where a proxy's files are on its host, and what tests and loads them."""

    proxy: Proxy
    site: str
    key: str
    link: str = ""
    """What enables the site; empty: nothing has to."""
    test: tuple[str, ...]
    reload: tuple[str, ...]
    key_owner: tuple[str, ...] = ("-m", "0600")


def questions(request: Request, picture: FleetState, survey: Survey) -> tuple[Question, ...]:
    """Questions to the proxy's host; none where the file is only printed."""
    host = request.options.get("on", "")
    if not host:
        return ()
    kind = _kind(request)
    questions: list[Question] = [
        PrivilegesQuestion(node=host),
        _program_question(host, kind),
        _running_question(host, kind),
        _folder_question(host),
        sites_question(host),
        FileText(node=host, path="/proc/net/if_inet6"),
    ]
    if all(question in survey.answers for question in questions):
        layout = _layout(request, survey)
        questions += [FileText(node=host, path=path) for path in (layout.site, layout.key)]
        questions += [FileText(node=host, path=_CADDYFILE)] if kind is Proxy.CADDY else []
    return tuple(questions)


def plan(request: Request, picture: FleetState, survey: Survey) -> Plan:
    """The plan; with the option `print` only the file, with `remove` its removal."""
    with refused_options():
        name = server_name(request.options.get("name", ""))
    host = request.options.get("on", "")
    if host:
        _require_proxy(request, survey)
    if request.options.get(REMOVE) == "yes":
        return _removal(request, name, picture, survey)
    site = _site(request, name, picture, survey)
    layout = _layout(request, survey)
    text = site_text(site, layout.proxy, layout.key.rpartition("/")[0])
    whole = Plan(
        request=request,
        title=f"Expose {name} on {host or 'a host'} by {layout.proxy}",
        risk=Risk.SAFE,
        steps=(),
        files={layout.site: text},
    )
    if request.options.get(PRINT) == "yes":
        return whole
    if not request.secret:
        raise Refused(
            "a key is required: without one, whoever reaches the proxy can use the engine",
            (
                "SPARKTOP_API_KEY in your environment, or --env-file FILE",
                "to make one: openssl rand -hex 32",
            ),
        )
    with refused_options():
        key = checked_key(request.secret)
    return _installation(replace(whole, secrets=(key,)), site, layout, text, key, survey)


# --- what is exposed


def _site(request: Request, name: str, picture: FleetState, survey: Survey) -> Site:
    host = request.options.get("on", "")
    with refused_options():
        upstreams = [upstream(text) for text in request.options.get("upstream", "").split()]
        port = int(request.options.get("listen") or 80)
    named = request.options.get("from", "").split()
    if not upstreams:
        views = [view for node in request.nodes if (view := picture.node(node)) is not None]
        upstreams = [
            _upstream_of(view, request.target, host, picture)
            for view in views
            if (view.name in named if named else _serves(view, request.target))
        ]
    if not upstreams:
        raise Refused("which engine?", ("name its Spark, or give --upstream IP:PORT",))
    has_ipv6 = not host or bool(survey.value(FileText(node=host, path="/proc/net/if_inet6")))
    return Site(name=name, upstreams=tuple(dict.fromkeys(upstreams)), port=port, has_ipv6=has_ipv6)


def _upstream_of(view: NodeView, name: str, host: str, picture: FleetState) -> Upstream:
    """The node's engine, as the proxy's host reaches it."""
    engine = _engine(view, name, picture)
    assert engine.endpoint is not None  # _engine has seen it
    if view.name == host:
        return Upstream(address=engine.endpoint.host, port=engine.endpoint.port)
    listens = listen_host(engine.argv, engine.kind)
    container = engine.container
    is_inside = container is not None and engine.endpoint.host in container.addresses
    if is_loopback(listens) or is_inside:
        names = f"{shlex.quote(view.name)} --engine {shlex.quote(engine.name)}"
        relaunch = f"sparktop act relaunch {names} --flag=--host=0.0.0.0"
        why = "in its container's own network, unpublished" if is_inside else f"on {listens} alone"
        raise Refused(
            f"{engine.name} on {view.name} listens {why}: no other machine reaches it",
            (f"put the proxy on {view.name} itself: --on {shlex.quote(view.name)}", f"or: {relaunch}"),
        )
    return Upstream(address=_address(view, picture.node(host)), port=engine.endpoint.port)


def _serves(view: NodeView, name: str) -> bool:
    """Whether the server of this name is there, and not only a further rank of it."""
    return any(engine.name == name and engine.endpoint is not None for engine in view.engines)


def _engine(view: NodeView, name: str, picture: FleetState) -> Engine:
    if name:
        rank = find(name, view.name, picture)
        candidates = [rank.engine] if rank is not None else []
    else:
        candidates = [engine for engine in view.engines if is_alive(engine)]
    serving = [engine for engine in candidates if engine.endpoint is not None]
    if len(serving) != 1:
        names = ", ".join(engine.name for engine in serving)
        reason = f"which engine of {view.name}? {names}" if serving else f"no engine serves on {view.name}"
        raise Refused(reason, ("name it: --engine ENGINE", "or give --upstream IP:PORT"))
    return serving[0]


def _address(view: NodeView, proxy: NodeView | None) -> str:
    """The node's address in the network, of the proxy where that is known; not on the cable between Sparks."""
    interfaces = [one for one in (view.network.interfaces if view.network else ()) if one.is_up is not False]
    slow = [one for one in interfaces if (one.speed_mbps or 0) < _FABRIC_MBPS]
    near = proxy.network.interfaces if proxy is not None and proxy.network else ()
    shared = {network for one in near for network in one.networks}
    candidates: dict[str, bool] = {}
    for one in slow:
        for address in sorted(one.plain_addresses):
            try:
                parsed = ipaddress.ip_address(address)
            except ValueError:
                continue
            if parsed.version == 4 and not parsed.is_loopback and not parsed.is_link_local:
                candidates[address] = bool(one.networks & shared)
    found = [address for address, is_near in candidates.items() if is_near] or list(candidates)
    if len(found) != 1:
        which = f"several addresses ({', '.join(found)})" if found else "no address that is known"
        raise Refused(
            f"{view.name} has {which}, and a proxy needs one: it reads names once, and .local names not at all",
            ("give it: --upstream IP:PORT",),
        )
    return found[0]


# --- the host


def _kind(request: Request) -> Proxy:
    return Proxy(request.options.get("with") or Proxy.NGINX)


def _program_question(host: str, kind: Proxy) -> Output:
    return Output(node=host, argv=("which", str(kind)))


def _running_question(host: str, kind: Proxy) -> Output:
    return Output(node=host, argv=("pgrep", "-x", str(kind)))


def _folder_question(host: str) -> Output:
    return Output(node=host, argv=("ls", "-d", _ENABLED, "/etc/nginx/conf.d"))


def _layout(request: Request, survey: Survey) -> Layout:
    """Where the files go: Debian's folders of sites, else conf.d."""
    host, name = request.options.get("on", ""), request.options.get("name", "").lower()
    if _kind(request) is Proxy.CADDY:
        return Layout(
            proxy=Proxy.CADDY,
            site=f"/etc/caddy/sparktop/{name}.caddy",
            key=f"/etc/caddy/sparktop/{name}.key",
            test=("/usr/bin/caddy", "validate", "--adapter", "caddyfile", "--config", _CADDYFILE),
            reload=("/usr/bin/caddy", "reload", "--adapter", "caddyfile", "--config", _CADDYFILE),
            key_owner=("-m", "0640", "-g", "caddy"),
        )
    folders = str(survey.value(_folder_question(host)) or "") if host else _ENABLED
    has_sites = _ENABLED in folders.split()
    return Layout(
        proxy=Proxy.NGINX,
        site=f"/etc/nginx/sites-available/{name}" if has_sites else f"/etc/nginx/conf.d/{name}.conf",
        key=f"/etc/nginx/sparktop/{name}.key",
        link=f"{_ENABLED}/{name}" if has_sites else "",
        test=("/usr/sbin/nginx", "-t"),
        reload=("/usr/sbin/nginx", "-s", "reload"),
    )


def _require_proxy(request: Request, survey: Survey) -> None:
    host, kind = request.options["on"], _kind(request)
    if not survey.value(_program_question(host, kind)):
        raise Refused(
            f"{kind} is not installed on {host}",
            (f"on {host}: sudo apt-get install {'nginx-light' if kind is Proxy.NGINX else 'caddy'}",),
        )
    if not survey.value(_running_question(host, kind)):
        raise Refused(
            f"{kind} is installed on {host} and doesn't run: nothing would read the new file",
            (f"to start it, now and at boot: on {host}: sudo systemctl enable --now {kind}",),
        )


def _doubled(site: Site, layout: Layout, host: str, survey: Survey) -> Iterator[str]:
    """Other files that nginx loads with the same upstream."""
    for path, statement in statements(survey.text(sites_question(host))):
        words = statement.replace("{", " ").split()
        if words[:2] == ["upstream", site.identifier] and path not in (layout.site, layout.link):
            yield sanitise.line(path)


# --- plans


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The proxy's files on its host, as they are and as they are to be."""

    host: str
    layout: Layout
    text: str
    key: str = field(repr=False)
    before: str | None
    had_key: bool
    caddyfile: str | None = None
    """Where Caddy's own file lacks the import: as it is."""

    @property
    def site(self) -> RemoteFile:
        return _file(self.layout.site, self.before, self.text)

    @property
    def _import(self) -> RemoteFile | None:
        if self.caddyfile is None:
            return None
        return _file(_CADDYFILE, self.caddyfile, f"{self.caddyfile.rstrip()}\n\n{_IMPORT}\n".lstrip())

    def write(self) -> Step:
        """Write the key and the site, and have the proxy test them; taken back where it refuses."""
        layout = self.layout
        operations = [self.site.check()]
        if self.had_key:
            operations.append(_root("/usr/bin/cp", "-fp", "--", layout.key, self._old_key))
        operations += [_file(layout.key, None, self.key, layout.key_owner).write(), self.site.write()]
        if layout.link:
            operations.append(_root("/usr/bin/ln", "-sfn", "--", layout.site, layout.link))
        if self._import is not None:
            operations.append(self._import.write())
        operations.append(_root(*layout.test))
        return Step(
            id="write",
            title=f"Write {layout.site} and its key, and have {layout.proxy} test them",
            node=self.host,
            act=Remote(operations=tuple(operations), undo=tuple(self.restore())),
            limit_s=300.0,
            verifies=f"{shlex.join(layout.test)} accepts it",
        )

    @property
    def _old_key(self) -> str:
        return f"{self.layout.key}.before"

    def restore(self) -> Iterator[Command]:
        """The files as they were."""
        layout = self.layout
        yield self.site.restore()
        if self.before is None and layout.link:
            yield remove(layout.link, privilege=Privilege.ROOT)
        if self.had_key:
            yield _root("/usr/bin/mv", "-f", "--", self._old_key, layout.key)
        else:
            yield remove(layout.key, privilege=Privilege.ROOT)
        if self._import is not None:
            yield self._import.restore()

    def load(self) -> Step:
        """Have the proxy load its files; requests under way are finished by the old ones."""
        return Step(
            id="reload",
            title=f"Have {self.layout.proxy} load its files",
            node=self.host,
            act=Remote(operations=(_root(*self.layout.reload),), reverse=(_root(*self.layout.reload),)),
            limit_s=120.0,
            verifies="it has taken the order",
        )

    def rollback(self) -> Iterator[Step]:
        yield Step(
            id="back-site",
            title=f"{self.layout.site} {'removed' if self.before is None else 'as it was'}, and loaded",
            node=self.host,
            act=Remote(operations=(*self.restore(), _root(*self.layout.test), _reload_if_it_runs(self.layout))),
            limit_s=300.0,
            undoes=("write",),
        )

    def forget_old_key(self) -> Iterator[Step]:
        if self.had_key:
            yield Step(
                id="old-key",
                title=f"Remove the old key, {self._old_key}",
                node=self.host,
                act=Remote(operations=(_root("/usr/bin/rm", "-f", "--", self._old_key),)),
                on_failure=OnFailure.FAIL_AT_END,
            )


def _installation(whole: Plan, site: Site, layout: Layout, text: str, key: str, survey: Survey) -> Plan:
    host = whole.request.options["on"]
    before = survey.text(FileText(node=host, path=layout.site))
    if others := list(_doubled(site, layout, host, survey)) if layout.proxy is Proxy.NGINX else []:
        raise Refused(
            f"{others[0]} on {host} defines the upstream {site.identifier} too, and nginx refuses two of one name",
            (f"remove the stale one: on {host}: sudo rm {shlex.quote(others[0])}", "then again"),
        )
    _refuse_stranger(before, layout, host)
    has_tls = before is not None and CERTBOT in before
    if has_tls and before is not None:
        if not all(f"server {one};" in before for one in site.upstreams):
            raise Refused(
                f"certbot has edited {layout.site} on {host}, and the upstreams are others: writing it anew would "
                "take its TLS away",
                (f"edit it: on {host}: sudo nano {layout.site}", "or remove it (--remove), expose again, run certbot"),
            )
        text = before  # a new key alone
    key_question = FileText(node=host, path=layout.key)
    caddyfile = survey.text(FileText(node=host, path=_CADDYFILE)) or ""
    files = Files(
        host=host,
        layout=layout,
        text=text,
        key=key_text(site, layout.proxy, key),
        before=before,
        had_key=survey.value(key_question) is not None or bool(survey.problem(key_question)),
        caddyfile=caddyfile if layout.proxy is Proxy.CADDY and _IMPORT not in caddyfile else None,
    )
    steps: list[Step] = [files.write(), with_rollback(files.load())]
    is_plain = not has_tls and not (layout.proxy is Proxy.CADDY and "http://" not in text)
    if is_plain:  # what answers by TLS is asked by its name, from here
        steps.append(
            Step(
                id="check",
                title=f"Check that {site.name} wants the key, and serves with it",
                node=host,
                act=CheckExposed(name=site.name, port=site.port, api_key=key),
                limit_s=60.0,
                verifies="401 without the key, 200 with it, 404 outside /v1/ and /health",
                on_failure=OnFailure.ROLL_BACK,
            )
        )
    steps += files.forget_old_key()
    require_root_for(steps, survey)
    what = " and ".join(map(str, site.upstreams))
    port = "" if site.port == 80 else f":{site.port}"
    certbot = (f"on {host}: sudo certbot --nginx -d {site.name}",) if layout.proxy is Proxy.NGINX and is_plain else ()
    return replace(
        whole,
        steps=tuple(steps),
        rollback=tuple(files.rollback()),
        is_all_or_nothing=True,
        effect=f"{layout.proxy} on {host} passes /v1/ and /health of {site.name} to {what}, for who sends the key. "
        "Requests under way go on.",
        outcome=f"http{'' if is_plain else 's'}://{site.name}{port}/v1 serves, with your key",
        warnings=tuple(_warnings(site, layout, host, survey, steps, is_plain=is_plain)),
        differences=tuple(_differences(files)),
        equivalent=(
            f"sparktop expose {site.name} {' '.join(f'--upstream {one}' for one in site.upstreams)} > {site.name}",
            f"on {host}: sudo install -m 0644 {site.name} {layout.site}   # and the key: sparktop expose prints how",
            *((f"on {host}: sudo ln -s {layout.site} {layout.link}",) if layout.link else ()),
            f"on {host}: sudo {shlex.join(layout.test)} && sudo {shlex.join(layout.reload)}",
            *certbot,
        ),
    )


def _differences(files: Files) -> Iterator[Difference]:
    yield from files.site.differences()
    yield Difference(what="file", name=files.layout.key, before=None, after="the key")
    if files.caddyfile is not None:
        yield Difference(what="file", name=_CADDYFILE, before=None, after=_IMPORT)


def _warnings(
    site: Site, layout: Layout, host: str, survey: Survey, steps: Sequence[Step], *, is_plain: bool
) -> Iterator[str]:
    if is_plain:
        add = f": sudo certbot --nginx -d {site.name}" if layout.proxy is Proxy.NGINX else ""
        yield f"Plain HTTP: keys and prompts can be read on the way. Add TLS before it faces the internet{add}"
    for path, statement in statements(survey.text(sites_question(host))):
        names = statement.rstrip(" ;").split()[1:]
        if statement.split()[:1] == ["server_name"] and site.name in names and path not in (layout.site, layout.link):
            yield f"{sanitise.line(path)} on {host} serves {site.name} too: nginx takes the first of one port."
    yield from sudo_notes(steps, survey.privileges(host), host)


def _removal(request: Request, name: str, picture: FleetState, survey: Survey) -> Plan:
    host, layout = request.options["on"], _layout(request, survey)
    before = survey.text(FileText(node=host, path=layout.site))
    if before is None:
        raise Refused(
            f"{name} is not exposed on {host}: there is no {layout.site}", (f"on {host}: ls {layout.site[:-1]}*",)
        )
    _refuse_stranger(before, layout, host)
    kept = f"{layout.key}.removed"
    gone = ["/usr/bin/rm", "-f", "--", layout.site, *filter(None, (layout.link,))]
    operations = (
        _root("/usr/bin/mv", "-f", "--", layout.key, kept),
        _root(*gone),
        _root(*layout.test),
        _root(*layout.reload),
        _root("/usr/bin/rm", "-f", "--", kept),
    )
    undo = (
        _root("/usr/bin/mv", "-f", "--", kept, layout.key),
        _file(layout.site, before, "").restore(),
        *((_root("/usr/bin/ln", "-sfn", "--", layout.site, layout.link),) if layout.link else ()),
        _reload_if_it_runs(layout),
    )
    step = Step(
        id="remove",
        title=f"Remove {layout.site} and its key, and have {layout.proxy} load the rest",
        node=host,
        act=Remote(operations=operations, undo=undo, reverse=f"sparktop expose {name} --on {shlex.quote(host)}"),
        limit_s=300.0,
        verifies=f"{shlex.join(layout.test)} accepts the rest",
    )
    require_root_for((step,), survey)
    return Plan(
        request=request,
        title=f"Take {name} away from {host}",
        risk=Risk.DISRUPTIVE,
        steps=(step,),
        effect=f"{layout.proxy} on {host} no longer serves {name}. Its certificate, if it has one, stays.",
        warnings=tuple(sudo_notes((step,), survey.privileges(host), host)),
        differences=(
            Difference(what="file", name=layout.site, before=f"{len(before.splitlines())} lines", after=None),
            Difference(what="file", name=layout.key, before="the key", after=None),
        ),
        equivalent=(
            f"on {host}: sudo rm {shlex.join(gone[3:])} {layout.key}",
            f"on {host}: sudo {shlex.join(layout.test)} && sudo {shlex.join(layout.reload)}",
        ),
    )


def _refuse_stranger(before: str | None, layout: Layout, host: str) -> None:
    if before is not None and not before.startswith(HEAD):
        raise Refused(
            f"{layout.site} is there already on {host}, and sparktop did not write it",
            (f"look: on {host}: cat {layout.site}", "or expose another name"),
        )


def _root(*argv: str) -> Command:
    return Command(argv=argv, privilege=Privilege.ROOT, limit_s=60.0)


def _reload_if_it_runs(layout: Layout) -> Command:
    """On the way back, where its files have been tested: 1 is a proxy that is stopped, and reads them as it starts."""
    return replace(_root(*layout.reload), accepts=(0, 1))


def _file(path: str, before: str | None, after: str, owner: tuple[str, ...] = ()) -> RemoteFile:
    mode = owner or FOR_ALL
    return RemoteFile(path=path, before=before, after=after, privilege=Privilege.ROOT, mode=mode)
