"""The report: one HTML file that opens from disk and needs neither network nor server."""

from upright.report.page.write import Contents, read_contents, write_report

__all__ = ["Contents", "read_contents", "write_report"]
