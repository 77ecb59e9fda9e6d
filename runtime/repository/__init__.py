"""The model repository."""

from runtime.repository.catalog import Catalog, CatalogEntry, builtin_catalog, load_catalog
from runtime.repository.location import default_downloads, default_root
from runtime.repository.progress import Progress, Step
from runtime.repository.ranges import TransferConfig
from runtime.repository.recipe import BuildJob, Built
from runtime.repository.repository import Repository
from runtime.repository.sources import Fetcher, Wanted

__all__ = [
    "BuildJob",
    "Built",
    "Catalog",
    "CatalogEntry",
    "Fetcher",
    "Progress",
    "Repository",
    "Step",
    "TransferConfig",
    "Wanted",
    "builtin_catalog",
    "default_downloads",
    "default_root",
    "load_catalog",
]
