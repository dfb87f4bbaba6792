"""Make a worker's plans, one for each connection or listener, from its services and URLs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from requite.errors import ConfigurationError
from requite.speaks.endpoints import Endpoints
from requite.speaks.plans import ServicePlan, WorkerSettings, no_call_id
from requite.speaks.registry import carries, service_plans
from requite.worker.handler import Group, Service, Serving


class Expanded(NamedTuple):
    """The services of a worker, and the groups that some of them belong to."""

    services: Sequence[Service]
    groups: Sequence[Serving]


def expanded(
    endpoints: Endpoints, given: Sequence[Service | Group], dialect: str | None
) -> Expanded:
    """Replace each group by its services. Raises `ConfigurationError` for groups that the protocol
    does not support."""
    if not any(isinstance(each, Group) for each in given):
        return Expanded([each for each in given if not isinstance(each, Group)], ())
    carried = carries(endpoints, dialect)
    services: list[Service] = []
    groups: list[Serving] = []
    for each in given:
        if isinstance(each, Group):
            groups.append(each.serve(carried))
            services += groups[-1].services
        else:
            services.append(each)
    return Expanded(services, groups)


def plans_for(
    endpoints: Endpoints, services: Sequence[Service], settings: WorkerSettings
) -> list[ServicePlan[Service]]:
    """Make the plans of a worker. Raises `ConfigurationError` for services that the protocol
    does not support."""
    plans = service_plans(endpoints, _check(services), settings)
    for plan in plans:
        _check_keys(plan, endpoints.protocol)
    return plans


def _check_keys(plan: ServicePlan[Service], protocol: str) -> None:
    """Refuse a `Dedup` service that would refuse every request, since none has a key or an id."""
    dedup = plan.service.idempotent
    if dedup is not None and dedup.refuses_unkeyed and plan.call_id is no_call_id:
        spoken = "MDP before 0.3" if protocol == "mdp" else protocol.upper()
        raise ConfigurationError(
            f"{plan.service.name!r} has Dedup, which requires a key or an id per request, and"
            f' {spoken} has neither; use MDP 0.3, or Dedup(unkeyed="run") to run requests'
            " without a key each time"
        )


def _check(services: Sequence[Service]) -> Sequence[Service]:
    if not services:
        raise ConfigurationError("a worker needs at least one service")
    for each in services:
        if not isinstance(each, Service):
            raise ConfigurationError(
                f"{each!r} is not a service; decorate it with @service('name')"
            )
    names = [each.name for each in services]
    if len(set(names)) < len(names):
        raise ConfigurationError(f"two services of a worker have the same name: {names}")
    return services
