"""A shop: every kind of view, and a feed for each customer."""

from tailrace import App

app = App("shop")

orders = app.topic(
    "orders",
    value="order_id string, customer_id string, product_id string, amount double, ordered_at timestamp",
    expect="amount > 0",
).dedupe(header="message-id")
products = app.table("products", key="product_id", value="name string, price double, sold boolean")
stock = app.table("stock", key="product_id", value="pieces int")

# An aggregate: one row per customer, counted since the beginning.
app.view("customers", orders, key="customer_id", columns={"orders": "count(*)", "spent": "sum(amount)"})

# A window: one row per product and hour; it is gone a day after the hour has ended.
app.view(
    "hourly-sales",
    orders,
    key="product_id",
    window="1 hour",
    at="ordered_at",
    late="10 minutes",
    keep="1 day",
    columns={"orders": "count(*)", "turnover": "sum(amount)"},
)

# The latest event per key.
last_orders = app.latest("last-orders", orders, key="customer_id")

# A table as a view; a product that is not sold any more is gone.
app.latest("offers", products.where("sold"))

# A join of tables: a row where both have the product.
available = app.join(
    "available",
    {"product": products, "stock": stock},
    how="inner",
    columns={"name": "product.name", "price": "product.price", "pieces": "stock.pieces"},
)

# A view over a view: what is about to run out.
app.latest("running-out", available.where("pieces < 10"))

# A feed: every order, in order, for the customer who listens.
app.feed("order-events", orders, key="customer_id")
