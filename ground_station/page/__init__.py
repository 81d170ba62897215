"""The page: a ship seen and commanded from a browser, offline and without a build step."""

PORT = 8421  # unless another is asked for
