"""Orders of two customers, for tests of rights."""

from __future__ import annotations

from dataclasses import replace

from gateway_process import Store, row, view
from tailrace.contracts.catalog import Column


def order_store(redis: str, app: str) -> Store:
    """A store with the views `orders`, whose rows have a customer, and `names`."""
    columns = (Column("order_id", "bigint"), Column("customer", "string"))
    orders = replace(view("orders", "order_id bigint"), columns=columns)
    store = Store(redis, app, orders, view("names", "name string"))
    store.publish_catalog()
    store.begin()
    store.put("orders", "1", 1, row(1, order_id=1, customer="c7"))
    store.put("orders", "2", 1, row(1, order_id=2, customer="c8"))
    store.put("names", "c7", 1, row(1, name="c7"))
    return store
