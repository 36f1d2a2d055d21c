"""The bytes behind a URL: http(s), data and file, within the limits of a policy.

See docs/concepts/pictures.md.
"""

from media.fetch.dataurl import is_data_url, read_data_url
from media.fetch.fetcher import Fetcher, FetchPolicy, Kind, shown_url

__all__ = ["FetchPolicy", "Fetcher", "Kind", "is_data_url", "read_data_url", "shown_url"]
