"""The settings of the app: what stands under `args:` in serve_config.yaml.

A misspelt name, a value out of range and an impossible pair are refused before anything starts, with a
sentence that shows both values. Units are in the names. `core` never sees these classes.
"""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from config.paths import CHECKOUT
from core.cache.retention import Retention, Rule, load_function
from core.coalescing.bounds import Bounds
from core.engines.artefact import FOLDER
from core.engines.registry import EngineSpec
from core.errors import SettingsError

ALIAS = "jev-latest"  # the name that clients send when they name no model of their own
CLIENT_TIMEOUT_S = 10.0  # the official client gives up, and sends again, after this long without an answer
TOKENS_OF_A_SHORT_ITEM = 16  # a batch of the shortest real questions; longer ones fill it sooner


def _yaml_switch(value: object) -> object:
    # YAML 1.1 reads a bare `on` or `off` as a boolean.
    return {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value


Mode = Annotated[Literal["on", "shadow", "off"], BeforeValidator(_yaml_switch)]
Seconds = Annotated[float | None, Field(strict=True)]  # a text or a switch is no length of time
Fraction = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Settings(BaseModel):
    """What all settings have in common: they cannot be misspelt, and cannot change."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class EngineSettings(Settings):
    """The model, and what it may use of its machine."""

    kind: Literal["embedded", "fake"] = "embedded"
    models_dir: str = ".precedent/models"  # where `python -m jobs.models` put the embedded model
    threads: int = Field(1, ge=1, le=256)
    max_batch_tokens: int = Field(4_096, ge=512)
    seed: int = 0  # fake: another seed is another engine
    delay_s: float = Field(0.0, ge=0, allow_inf_nan=False)  # fake: how long a call takes
    fickle: bool = False  # fake: no two calls answer alike
    runs_file: str | None = None  # fake: gets a line for each item whose run begins

    def spec(self, home: Path = CHECKOUT) -> EngineSpec:
        """The engine in the words of `core`, with its model seen from `home`."""
        own = self.model_dump(exclude={"models_dir"})
        return EngineSpec(model_dir=str(home / self.models_dir / FOLDER), **own)


class RuleSettings(Settings):
    """A time to live for some questions, by id or by margin."""

    ttl_s: Seconds
    question: str | None = None
    margin_below: float | None = None
    margin_from: float | None = None


class CacheSettings(Settings):
    """How long decisions are kept, and how many."""

    mode: Mode = "on"
    tenant_modes: dict[str, Mode] = {}
    ttl_s: Seconds = None  # None is for ever, 0 is not at all
    max_age_s: Seconds = None
    renew_on_hit: bool = False
    rules: tuple[RuleSettings, ...] = ()
    ttl_function: str | None = None  # package.module:function
    store_deadline_s: Fraction = 0.05
    max_entries: int = Field(1_000_000, ge=1)  # in the store; the least recently stored leaves first
    l1_entries: int = Field(20_000, ge=0)  # in the memory of each Router replica

    def retention(self) -> Retention:
        """How long decisions are kept, in the words of `core`.

        Raises:
            SettingsError: an impossible time, or a function that cannot be imported.
        """
        return Retention(
            ttl_s=self.ttl_s,
            max_age_s=self.max_age_s,
            renew_on_hit=self.renew_on_hit,
            rules=tuple(Rule(**rule.model_dump()) for rule in self.rules),
            function=None if self.ttl_function is None else load_function(self.ttl_function),
        )

    @model_validator(mode="after")
    def _times_are_possible(self) -> Self:
        try:
            self.retention()
        except SettingsError as error:
            raise ValueError(str(error)) from None
        return self


class LimitSettings(Settings):
    """What a caller may send."""

    max_body_bytes: int = Field(2 * 1024 * 1024, ge=1_024, le=64 * 1024 * 1024)  # as sent, and decompressed
    max_state_chars: int = Field(200_000, ge=1)
    max_questions: int = Field(512, ge=1)
    receive_s: float = Field(10.0, gt=0, allow_inf_nan=False)  # for a body to arrive

    @model_validator(mode="after")
    def _a_state_fits_into_a_body(self) -> Self:
        if self.max_state_chars > self.max_body_bytes:
            raise ValueError(
                f"max_state_chars={self.max_state_chars} can never be reached: a body holds at most "
                f"max_body_bytes={self.max_body_bytes}; raise the one or lower the other"
            )
        return self


class RouterSettings(Settings):
    """The replicas that receive HTTP, look up and decide."""

    replicas: int = Field(1, ge=1)
    num_cpus: Fraction = 0.5  # what Ray reserves for each; a reservation, not a limit
    max_ongoing_requests: int = Field(2_000, ge=1)  # requests that wait for the model count; hits pass them


class ModelSettings(Settings):
    """The replicas that run the engine."""

    replicas: int = Field(1, ge=1)
    num_cpus: Fraction = 0.5
    num_gpus: float = Field(0.0, ge=0)
    max_ongoing_requests: int = Field(512, ge=1)


class CoalescerSettings(Settings):
    """How Routers agree on who computes."""

    shards: int = Field(1, ge=1, le=64)  # actors; 0.1 CPU each
    lease_s: Fraction = 3.0  # a Router that is not heard for this long has lost its turns
    max_wait_s: Fraction = 6.0  # who waited this long for another Router computes

    def bounds(self) -> Bounds:
        """The bounds in the words of `core`."""
        return Bounds(lease_s=self.lease_s, max_wait_s=self.max_wait_s)


class AdmissionSettings(Settings):
    """How much may wait in one Router; more gets 429 with Retry-After. Replays are never refused."""

    max_computing: int = Field(1_000, ge=1)  # decisions being made
    max_waiting_per_key: int = Field(1_000, ge=1)  # callers of one of them


class TasksSettings(Settings):
    """Recurring questions, and what teaching them may use."""

    store: str | None = None  # None: where the decisions are
    read_only: bool = False  # serve tasks, and refuse to write them
    settle: Literal["sync", "async"] = "sync"  # async: a table's answer is given before the store was asked
    poll_s: Fraction = 1.0  # how often the task store is asked what is new
    register_wait_s: float = Field(8.0, ge=0, allow_inf_nan=False)  # then a registration is answered with 202
    max_examples: int = Field(100_000, ge=1)
    max_body_bytes: int = Field(64 * 1024 * 1024, ge=1_024, le=256 * 1024 * 1024)
    max_fits: int = Field(2, ge=1)  # at a time, of one Router
    max_rows: int = Field(50_000, ge=100)  # kept of each kind for a task that learns from traffic
    max_pending_rows: int = Field(10_000, ge=1)  # in one Router while the store is away; more are lost
    flush_s: Fraction = 1.0  # how often rows, and what was seen of tables, go to the store


class FastTableDeploymentSettings(Settings):
    """The replicas that make sentence vectors; started when the first table needs them."""

    min_replicas: int = Field(0, ge=0)
    max_replicas: int = Field(2, ge=1)
    num_cpus: Fraction = 0.5
    threads: int = Field(1, ge=1, le=256)
    max_ongoing_requests: int = Field(64, ge=1)
    deadline_s: Fraction = 1.0  # after it the engine is asked instead

    @model_validator(mode="after")
    def _the_range_is_one(self) -> Self:
        if self.min_replicas > self.max_replicas:
            raise ValueError(
                f"min_replicas={self.min_replicas} is above max_replicas={self.max_replicas}; raise the one "
                "or lower the other"
            )
        return self


class AppConfig(Settings):
    """Everything that `serve_config.yaml` may say about Precedent."""

    deployment: str = Field("default", min_length=1, max_length=128)  # a part of every key
    models: tuple[str, ...] = ()  # names that requests may use, beside the engine's own and `jev-latest`
    engine: EngineSettings = EngineSettings()
    store: str = "sqlite:///.precedent/decisions.db"
    cache: CacheSettings = CacheSettings()
    limits: LimitSettings = LimitSettings()
    keys_file: str | None = None  # API keys; without it the service only listens on this machine
    deadline_s: float = Field(9.0, gt=0, allow_inf_nan=False)
    coalescer: CoalescerSettings = CoalescerSettings()
    admission: AdmissionSettings = AdmissionSettings()
    router: RouterSettings = RouterSettings()
    model: ModelSettings = ModelSettings()
    tasks: TasksSettings = TasksSettings()
    fast_table: FastTableDeploymentSettings = FastTableDeploymentSettings()
    settings_file: str | None = None  # the file these settings came from, read again for Ray's own names

    def model_names(self, engine: str) -> tuple[str, ...]:
        """Names that requests may use, without repeats: the engine's first."""
        return tuple(dict.fromkeys((engine, ALIAS, *self.models)))

    @model_validator(mode="after")
    def _an_answer_comes_before_clients_give_up(self) -> Self:
        if self.deadline_s >= CLIENT_TIMEOUT_S:
            raise ValueError(
                f"deadline_s={self.deadline_s:g} comes too late: clients give up after "
                f"{CLIENT_TIMEOUT_S:g} s and send the request again; choose less"
            )
        return self

    @model_validator(mode="after")
    def _a_wait_leaves_time_to_compute(self) -> Self:
        if self.coalescer.max_wait_s >= self.deadline_s:
            raise ValueError(
                f"coalescer.max_wait_s={self.coalescer.max_wait_s:g} leaves nothing of deadline_s="
                f"{self.deadline_s:g} to compute in when another Router does not answer; choose less"
            )
        return self

    @model_validator(mode="after")
    def _a_batch_can_fill(self) -> Self:
        fills = self.engine.max_batch_tokens // TOKENS_OF_A_SHORT_ITEM
        if self.model.max_ongoing_requests < fills:
            raise ValueError(
                f"engine.max_batch_tokens={self.engine.max_batch_tokens} can never fill with short "
                f"questions: it holds {fills} of them and a Model replica takes model.max_ongoing_requests="
                f"{self.model.max_ongoing_requests} at a time; raise the latter to {fills}"
            )
        return self
