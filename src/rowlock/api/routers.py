"""How the routers of the API are made, and how their routes get into an application."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute


def operation_name(route: APIRoute) -> str:
    """Its name in the OpenAPI document; generated clients name their functions after it."""
    return route.name


def api_router(**options: Any) -> APIRouter:
    """A router, with the options of FastAPI's."""
    return APIRouter(generate_unique_id_function=operation_name, **options)


def add_routes(target: FastAPI | APIRouter, routers: Iterable[APIRouter]) -> None:
    """Serve the routes of our own routers as they are.

    `include_router` would make a second copy of each route, with all of its models, at an application's first
    request: 100 ms of processor time. The copies add what the application demands of each route, which is nothing.
    """
    routes = target.router.routes if isinstance(target, FastAPI) else target.routes
    for router in routers:
        routes.extend(router.routes)
