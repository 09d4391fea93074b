"""The site's links that leave docs/ lead into the repository. In the pages they are relative, for readers of the repository."""

import posixpath
import re

LINK = re.compile(r"(?<=\]\()\.\./[^)\s]*")


def on_page_markdown(markdown, page, config, files):
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def of_repository(match):
        path = posixpath.normpath(posixpath.join(folder, match.group()))
        return match.group() if path.startswith("docs/") else posixpath.join(config["repo_url"], "blob/main", path)

    return LINK.sub(of_repository, markdown)
