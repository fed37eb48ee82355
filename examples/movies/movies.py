from tailrace import App

app = App("movies")
ratings = app.topic("ratings", value="movie_id long, rating double", format="json")

rating_averages = app.view(
    "rating-averages",
    ratings.where("rating between 0 and 10"),
    key="movie_id",
    columns={"rating": "avg(rating)", "ratings": "count(*)"},
)
