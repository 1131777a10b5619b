"""The browser of the end-to-end tests: which Chromium, and with which switches."""

import pytest

from tools import chromium

# Of these switches the last one counts, so this names those that Playwright turns off, too. The address bar's own pages, which
# are not seen here, are most of the processor time that a window takes (0.8 of 1.1 s).
_FEATURES_OFF = (
    *("WebUIOmniboxPopup", "WebUIOmniboxAimPopup"),
    *("AvoidCorsURLLoaderRestartOnRedirect", "AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose"),
    *("HttpsFirstBalancedModeAutoEnable", "HttpsUpgrades", "MediaRouter", "NetworkTimeServiceQuerying", "OptimizationHints"),
    *("PaintHolding", "PreconnectToSearch", "ThirdPartyStoragePartitioning"),
)

# No sandbox, because a container's root cannot have one; the rest keeps the browser from talking to anyone but the test.
BROWSER_SWITCHES = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    f"--disable-features={','.join(_FEATURES_OFF)}",
)


@pytest.fixture(scope="session")
def browser_path() -> str:
    """Path of a Chromium that runs. Its absence fails the test, because a skipped end-to-end test proves nothing."""
    try:
        return chromium.find()
    except chromium.NoChromium as error:
        pytest.fail(str(error), pytrace=False)
