"""A workflow: pages are fetched at once, each is parsed when it is there, and one report is made of all.

In one terminal:  mqworker run workflow:app
In another:       python workflow.py
"""

from mqworker import App, MemberFailure, chain, chord, group

app = App("workflow")


@app.task
def fetch(page: int) -> str:
    return f"page {page}: " + "word " * page


@app.task
def count_words(text: str) -> int:
    return len(text.split())


@app.task(retry=0)
def read_scan(page: int) -> int:
    raise ValueError(f"page {page} cannot be read")


@app.task
def report(counts: list[int | MemberFailure]) -> str:
    words = sum(count for count in counts if isinstance(count, int))
    missing = [each.message for each in counts if isinstance(each, MemberFailure)]
    return f"{words} words" + (f", but {', '.join(missing)}" if missing else "")


if __name__ == "__main__":
    # The result of each step is the first argument of the next.
    print(chain(fetch.s(3), count_words.s()).enqueue().result(timeout=30))

    # Hundreds at once; the result is the list, in order.
    pages = group(chain(fetch.s(page), count_words.s()) for page in range(300))
    print(len(pages.enqueue().result(timeout=60)), "pages counted")

    # One callback for all of them. `|` does the same as chord.
    print((pages | report.s()).enqueue().result(timeout=60))

    # A member that fails stops the workflow, unless failures are collected as values.
    members = [fetch.s(1) | count_words.s(), read_scan.s(2)]
    print(chord(members, report.s(), on_failure="collect").enqueue().result(timeout=30))
