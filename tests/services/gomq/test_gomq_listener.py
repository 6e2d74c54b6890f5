"""A listener that ended is noticed and built anew, in the same process, as often as it takes."""

from __future__ import annotations

from tests.services.gomq.gomq_node import Foreign, GomqNode
from tests.support.deadline import wait_until
from tests.support.raw_http2 import call_with_path
from tests.support.real_server import RealServer

TIMES = 10
BACK_WITHIN_S = 5.0


def test_a_path_that_is_no_text_ends_the_listener_and_it_is_built_anew(server: RealServer) -> None:
    with GomqNode(server.url) as node:
        host, _, port = node.target.partition(":")
        pid = node.child("gateway:gomq")["pid"]
        for number in range(TIMES):
            call_with_path((host, int(port)), b"/\xff\xfe/Publish")
            wait_until(lambda n=number: is_back(node, n + 1), "it is noticed, and built anew", BACK_WITHIN_S)
            client = Foreign(node.target)
            assert client.publish("AFTER", b"%d" % number) == 0
            client.close()

        assert node.child("gateway:gomq")["pid"] == pid
        assert "UnicodeDecodeError" in node.log()


def is_back(node: GomqNode, times: int) -> bool:
    facts = node.facts("gateway:gomq")
    return bool(facts["rebuilt"] == times and facts["is_listening"])
