"""Counts what was covered and prints it at the end; a full run that covered none of something fails."""

import collections

COVERED = ("notebooks", "compared cells", "checks", "kernels compiled")


def _totals(terminalreporter) -> collections.Counter:
    total: collections.Counter = collections.Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "call" and report.passed:
                total.update({name: n for name, n in report.user_properties if name in COVERED})
    return total


def pytest_sessionfinish(session, exitstatus):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    partial = session.config.option.keyword or session.config.args != session.config.getini("testpaths")
    if reporter and not hasattr(session.config, "workerinput") and not partial and exitstatus == 0:
        missing = [name for name in COVERED if not _totals(reporter)[name]]
        if missing:
            session.exitstatus = 1
            reporter.write_line(f"error: nothing was covered of: {', '.join(missing)}", red=True)


def pytest_terminal_summary(terminalreporter):
    total = _totals(terminalreporter)
    if total:
        terminalreporter.write_line("covered: " + ", ".join(f"{total[name]} {name}" for name in COVERED))
