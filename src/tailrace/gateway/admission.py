"""Admission: whether a client may follow what it asks for, over Server-Sent Events or on a WebSocket.

The steps: 1 check the limits on keys; 2 apply the client's rights, once; 3 check what its user may hold; 4 for a
query, ask materializers to evaluate it. The result is a `Maker`, which makes the subscription once the wire is
there. Every step raises a Problem that says what was expected.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from tailrace.access.identity import Identity
from tailrace.contracts.commands import Stream
from tailrace.gateway.budgets import user_of
from tailrace.gateway.connection.wire import Wire
from tailrace.gateway.gateway import Gateway
from tailrace.gateway.live.feeds.subscription import FeedSubscription
from tailrace.gateway.live.keys.subscription import KeySubscription
from tailrace.gateway.live.positions import OTHER_RIGHTS
from tailrace.gateway.live.queries.subscription import QuerySubscription
from tailrace.gateway.live.requests import Follow, FollowFeed, FollowKeys, FollowQuery, FollowStream
from tailrace.gateway.live.streams.position import stream_entry
from tailrace.gateway.live.streams.subscription import Inner, StreamSubscription, follows
from tailrace.gateway.live.subscription import Subscription
from tailrace.gateway.problems import Problem, check_keys, no_catalog, redis_away, unknown_feed
from tailrace.queries import Predicate
from tailrace.store.connection.outages import Unavailable

# Bytes that a followed key takes beside its own.
_KEY = 200

T = TypeVar("T")
Maker = Callable[[Wire], Subscription]


async def admit(gateway: Gateway, follow: Follow, identity: Identity | None) -> Maker:
    """Return what makes the subscription that a client asks for. Raises a Problem if the client can't have it."""
    if isinstance(follow, FollowKeys):
        check_keys(gateway.limits, follow.keys)
    elif isinstance(follow, FollowFeed):
        check_keys(gateway.limits, [follow.client])
    follow = await gateway.access.narrowed(identity, follow)
    if isinstance(follow, FollowStream):
        return await _stream(gateway, follow, identity)
    if isinstance(follow, FollowFeed):
        return _feed(gateway, follow, identity)
    if isinstance(follow, FollowQuery):
        return await _query(gateway, follow, identity)
    return _keys(gateway, follow, identity)


async def stream_query(gateway: Gateway, stream: Stream, identity: Identity | None) -> Predicate | None:
    """The query of a stream, restricted to what the client may see; None for a stream of keys.

    Raises a Problem if the client may not follow the stream, or can't.
    """
    view = gateway.access.view(identity, stream.view)
    if stream.keys is not None:
        gateway.access.may_follow_keys(identity, stream.view, encoded(stream.keys))
        return None
    _, predicate = await gateway.access.query(identity, view, stream.where)
    return predicate


def cost_of(predicate: Predicate | None) -> int:
    """How many comparisons a query costs for every row that changes: one at least, 0 without a query."""
    return 0 if predicate is None else max(1, predicate.cost)


def encoded(keys: Iterable[str]) -> list[bytes]:
    """Keys as the changelog has them."""
    return [key.encode() for key in keys]


def bytes_of(follow: Follow) -> int:
    """How many bytes it takes to follow something: its keys, and the other texts that the client gives."""
    texts = len(follow.position or "")
    if isinstance(follow, FollowFeed):
        return texts + len(follow.client) + _KEY
    if isinstance(follow, FollowQuery):
        return texts + len(follow.where or "") + _KEY
    texts += sum(len(key) + len(position) for key, position in follow.positions.items())
    return texts + (sum(len(key) + _KEY for key in follow.keys) if isinstance(follow, FollowKeys) else 0)


async def with_redis(work: Awaitable[T]) -> T:
    """The result of some work; raises a Problem if Redis is away."""
    try:
        return await work
    except Unavailable as error:
        raise redis_away(error) from None


def _check_added(gateway: Gateway, subscription: StreamSubscription, keys: Sequence[bytes]) -> None:
    """Raise a Problem if a stream now follows more than its client may."""
    check_keys(gateway.limits, subscription.stream.keys or ())
    identity = subscription.wire.identity
    gateway.budgets.followed.hold(subscription, user_of(identity), bytes_of(subscription.asked))
    gateway.access.may_follow_keys(identity, subscription.stream.view, keys)


def _afford(gateway: Gateway, follow: Follow, identity: Identity | None, cost: int = 0) -> Callable[[Maker], Maker]:
    """Wrap a maker so that its subscription is counted. Raises a Problem if the user follows too much already."""
    user, budgets, size = user_of(identity), gateway.budgets, bytes_of(follow)
    if isinstance(follow, FollowQuery):
        budgets.queries.check(user, cost)
        # A query is computed for a while after its client has left, so each new one costs work, too.
        budgets.pace(user, cost)
    budgets.followed.check(user, size)

    def counted(make: Maker) -> Maker:
        def made(wire: Wire) -> Subscription:
            subscription = make(wire)
            budgets.queries.hold(subscription, user, cost)
            try:
                budgets.followed.hold(subscription, user, size)
            except Problem:
                budgets.left(subscription)
                raise
            return subscription

        return made

    return counted


def _keys(gateway: Gateway, follow: FollowKeys, identity: Identity | None) -> Maker:
    view, keys = gateway.access.view(identity, follow.view), encoded(follow.keys)
    positions = {key.encode(): position for key, position in follow.positions.items()}
    return _afford(gateway, follow, identity)(
        lambda wire: KeySubscription(
            gateway.keys, wire, view, keys, id=follow.id, position=follow.position, positions=positions
        )
    )


async def _query(gateway: Gateway, follow: FollowQuery, identity: Identity | None) -> Maker:
    view = gateway.access.view(identity, follow.view)
    text, predicate = await gateway.predicates.parse(follow.where, view.columns)
    afford = _afford(gateway, follow, identity, cost_of(predicate))
    followed = await gateway.queries.open(view, text, predicate)
    return afford(
        lambda wire: QuerySubscription(
            gateway.queries, wire, follow.id, followed.query, view.name, text, follow.position
        )
    )


def _feed(gateway: Gateway, follow: FollowFeed, identity: Identity | None) -> Maker:
    known = gateway.known
    if not known.loaded:
        raise no_catalog(known.problem)
    if follow.feed not in known.feeds:
        raise unknown_feed(follow.feed, gateway.access.known_names(identity, "feed", known.feeds))
    return _afford(gateway, follow, identity)(
        lambda wire: FeedSubscription(
            gateway.feeds, wire, follow.id, follow.feed, follow.client.encode(), follow.position
        )
    )


async def _stream(gateway: Gateway, follow: FollowStream, identity: Identity | None) -> Maker:
    stream = await with_redis(gateway.directory.get(follow.stream, keep=True))
    # Another gateway may have opened it, and have other limits.
    check_keys(gateway.limits, stream.keys or ())
    predicate = await stream_query(gateway, stream, identity)
    query = None if predicate is None else predicate.digest

    # A connection to a stream counts as if its client followed what is in the stream.
    return _afford(gateway, follows(stream, follow), identity, cost_of(predicate))(
        lambda wire: StreamSubscription(
            gateway.connected,
            wire,
            follow,
            stream,
            query,
            partial(_followed_by_stream, gateway),
            partial(_check_added, gateway),
            gateway.metrics,
            gateway.timing,
        )
    )


async def _followed_by_stream(gateway: Gateway, stream: Stream, wire: Wire, follow: FollowStream) -> Inner:
    asked, identity, access = follows(stream, follow), wire.identity, gateway.access
    view = access.view(identity, stream.view)
    if not await access.resumable(identity, asked):
        asked = follows(stream, replace(follow, position=OTHER_RIGHTS, positions={}))
    if isinstance(asked, FollowQuery):
        text, predicate = await access.query(identity, view, asked.where)
        followed = await gateway.queries.open(view, text, predicate)
        return QuerySubscription(gateway.queries, wire, asked.id, followed.query, view.name, text, asked.position)
    access.may_follow_keys(identity, stream.view, encoded(asked.keys))
    come = stream_entry(stream, asked.position, asked.positions)
    return KeySubscription(
        gateway.keys,
        wire,
        view,
        encoded(asked.keys),
        id=asked.id,
        position=asked.position,
        positions=come.positions,
        # The client may no longer be allowed to know of a key that the stream once had.
        departed=[key for key in come.departed if access.allows_key(identity, view.name, key)],
        reset=come.reset,
        growing=True,
    )
