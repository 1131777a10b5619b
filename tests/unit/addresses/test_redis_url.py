"""A Redis URL is parsed once, into a value; a fault is one line without a part of its credentials."""

from contextlib import suppress
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import BusRefused, SettingsError
from headgate.settings.addresses.redis_url import RedisKind, RedisUrl, read_url
from headgate.settings.settings import Settings


@pytest.mark.parametrize(
    ("url", "value"),
    [
        ("redis://host", RedisUrl(RedisKind.SERVER, False, (("host", 6379),))),
        ("valkey://host", RedisUrl(RedisKind.SERVER, False, (("host", 6379),))),
        ("valkeys://host:1", RedisUrl(RedisKind.SERVER, True, (("host", 1),))),
        ("redis:///3", RedisUrl(RedisKind.SERVER, False, (("localhost", 6379),), database=3)),
        ("REDISS://Host:1/0/", RedisUrl(RedisKind.SERVER, True, (("host", 1),))),
        ("redis://u:p%2F%23@h?db=2", RedisUrl(RedisKind.SERVER, False, (("h", 6379),), database=2, username="u", password="p/#")),
        ("redis://:p[w]@h", RedisUrl(RedisKind.SERVER, False, (("h", 6379),), password="p[w]")),
        ("redis://:a@b@h", RedisUrl(RedisKind.SERVER, False, (("h", 6379),), password="a@b")),
        ("redis://h?username=u&password=p%20w", RedisUrl(RedisKind.SERVER, False, (("h", 6379),), username="u", password="p w")),
        ("redis://[0:0::1]:7/1", RedisUrl(RedisKind.SERVER, False, (("::1", 7),), database=1)),
        ("redis://h?protocol=3&socket_timeout=5&retry_on_timeout=yes", RedisUrl(RedisKind.SERVER, False, (("h", 6379),))),
        (
            "rediss://h?ssl_cert_reqs=CERT_NONE&ssl_check_hostname=no",
            RedisUrl(RedisKind.SERVER, True, (("h", 6379),), options=(("ssl_cert_reqs", "none"), ("ssl_check_hostname", False))),
        ),
        (
            "unix://u:p@/run/a%20b%40c?db=4",
            RedisUrl(RedisKind.SOCKET, False, (), path="/run/a b@c", database=4, username="u", password="p"),
        ),
        (
            "redis+sentinel://a,b:1/main/2",
            RedisUrl(RedisKind.SENTINELS, False, (("a", 26379), ("b", 1)), primary="main", database=2),
        ),
        (
            "rediss+sentinel://ana:pa%40ss@s1:1,[::1]:2/my%20main/3?sentinel_username=sam&sentinel_password=s%26&sentinel_tls=no"
            "&ssl_ca_certs=ca.pem",
            RedisUrl(
                *(
                    RedisKind.SENTINELS,
                    True,
                    (("s1", 1), ("::1", 2)),
                    "",
                    "my main",
                    3,
                    "ana",
                    "pa@ss",
                    (("ssl_ca_certs", "ca.pem"),),
                ),
                sentinel=(("username", "sam"), ("password", "s&"), ("tls", False)),
            ),
        ),
        ("rediss+cluster://a,b:1/0", RedisUrl(RedisKind.CLUSTER, True, (("a", 6379), ("b", 1)))),
        ("redis://straße.example", RedisUrl(RedisKind.SERVER, False, (("xn--strae-oqa.example", 6379),))),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_url_becomes_a_value(url: str, value: RedisUrl) -> None:
    assert read_url(url) == value


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://h?foo=bar", "option foo, which is unknown; allowed: client_name, db, "),
        ("redis://h?ssl_cert_reqs=none", "option ssl_cert_reqs, which needs TLS: begin it with rediss"),
        ("rediss://h?ssl_cert_reqs=never", "option ssl_cert_reqs; expected none, optional or required"),
        ("rediss://h?ssl_keyfile=k", "option ssl_keyfile without ssl_certfile"),
        ("redis://a..b", "each label of a host name"),
        ("redis+sentinel://a,b..c/m", "each label of a host name"),
        ("redis://h?socket_timeout=abc", "option socket_timeout; expected a number of seconds"),
        ("redis://h?db", "option db; expected a whole number"),
        ("redis://h?db=1&db=1", "option db twice"),
        ("redis://h/1?db=2", "two databases"),
        ("redis://u@h?username=v", "username twice"),
        ("redis://h?sentinel_password=x", "option sentinel_password, which is unknown"),
        ("amqp://h", "not of the form redis://host:6379/0"),
        ("h:6379", "not of the form"),
        ("", "not of the form"),
        ("redis://h\n", None),
        ("redis://h\t1", "not of the form"),
        ("redis://", "names no host"),
        ("redis://:6379/0", "names no host"),
        ("redis://:pw@/0", "names no host"),
        ("redis://h:99999", "wrong port; expected a number from 1 to 65535"),
        ("redis://h:0", "wrong port"),
        ("redis://h:1:2", "wrong port"),
        ("redis://h:", "wrong port"),
        ("redis://[::1", "has a host that is none; expected a name"),
        ("redis://[h]", "wrong host: a host with a colon or a bracket is an IPv6 address"),
        ("redis://h/abc", "wrong database; expected a whole number"),
        ("redis://h/0/1", "wrong database"),
        ("redis://h/-1", "wrong database"),
        ("redis://h h", "each label of a host name"),
        ("redis://a..b\u200d-\u00df", "not valid under IDNA 2008"),
        ("redis://h?client_name=%zz", "two hexadecimal digits"),
        ("redis://:%ff@h", "not UTF-8"),
        ("unix://", "names no socket"),
        ("unix://host/path", "names a host before the path"),
        ("redis+sentinel://a", "names no primary"),
        ("redis+sentinel://a,/m", "names no host"),
        ("redis+sentinel:///m", "names no host"),
        ("redis+sentinel://a/m/zero", "wrong database"),
        ("redis+sentinel://a/m?sentinel_tls=maybe", "option sentinel_tls; expected yes or no"),
        ("redis+sentinel://a/m?sentinel_tls=", "option sentinel_tls; expected yes or no"),
        ("rediss://h?ssl_check_hostname=%20", "option ssl_check_hostname; expected yes or no"),
        ("redis+cluster://a,b/3", "database 3, and a Cluster has only database 0"),
        ("redis+cluster://,a", "names no host"),
    ],
)
def test_what_is_wrong_is_one_line(url: str, says: str | None) -> None:
    """It names the part at fault and the expected form; white space around is none of it."""
    if says is None:
        assert read_url(url)
        return
    with pytest.raises(BusRefused) as caught:
        read_url(url)
    assert says in caught.value.message
    assert "\n" not in caught.value.message


RESERVED = ("/", "#", "?", "%", "@", "?db=", "?foo=", "#@", "/@", "@/", "@?", ":", "[", "]", "&", "%2")


@pytest.mark.parametrize(
    "form",
    [
        *("redis://{}@h:6379/0", "rediss+sentinel://{}@h,i/main/0", "redis+cluster://{}@h", "unix://{}@/p"),
        *("redis://h/0?password={}", "rediss+sentinel://h/main?sentinel_password={}", "rediss://h?ssl_password={}"),
    ],
)
def test_no_part_of_a_password_is_shown(form: str) -> None:
    """Wherever a reserved character cuts it: neither the error nor an accepted URL shows it."""
    for user, raw in product(("", "zebra"), RESERVED):
        url = form.format(f"{user}:zebra{raw}7zebra")
        try:
            value = read_url(url)
        except BusRefused as error:
            shown = f"{error.message} {error.__notes__ if hasattr(error, '__notes__') else ''} {error.__cause__}"
        else:
            shown = f"{value} {value!r}"
        assert "zebra" not in shown, url


@pytest.mark.parametrize("raw", ["/", "#", "?"])
def test_a_raw_character_in_a_password_says_what_to_write(raw: str) -> None:
    """The way to write each of them."""
    with pytest.raises(BusRefused, match=r"/ is %2F, \? is %3F, # is %23"):
        read_url(f"redis://:zebra{raw}x@h:6379/0")


@given(st.text(max_size=40))
def test_any_text_is_a_url_or_one_error(rest: str) -> None:
    """No other exception is raised, whatever follows the scheme."""
    for scheme in ("redis", "rediss+sentinel", "redis+cluster", "unix"):
        with suppress(BusRefused):
            assert str(read_url(f"{scheme}://{rest}"))


@pytest.mark.parametrize("url", ["localhost:6379", "http://host", "redis://host:port", "redis://", "redis://:zebra/x@h"])
def test_a_setting_that_is_wrong_names_the_variable_and_the_reason(url: str) -> None:
    """In the line that lists the faults of all settings."""
    with pytest.raises(SettingsError) as caught:
        Settings.read({"HEADGATE_REDIS_URL": url})
    assert caught.value.message.startswith("1 setting is wrong:\n  HEADGATE_REDIS_URL=(hidden): the Redis URL ")
    assert "zebra" not in caught.value.message
