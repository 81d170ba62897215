"""The live view as Foxglove's viewer meets it: its protocol on a real WebSocket."""

import contextlib
import json
import struct
from pathlib import Path

import pytest
from websockets.sync.client import connect

from blimp.errors import ConfigError
from blimp.service.logs.live_view import LiveView
from tests.service.test_recorder import Rig

DEADLINE_S = 20.0


def test_a_viewer_gets_the_topics_and_what_is_recorded(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    with LiveView(0) as view:
        rig.start(live=view)
        rig.fly(1.0)
        with connect(
            f"ws://127.0.0.1:{view.port}",
            subprotocols=["foxglove.sdk.v1"],  # type: ignore[list-item]
        ) as viewer:
            info = json.loads(viewer.recv(timeout=DEADLINE_S))
            assert (info["op"], info["capabilities"]) == ("serverInfo", [])
            offered = json.loads(viewer.recv(timeout=DEADLINE_S))["channels"]
            (channel,) = (one for one in offered if one["topic"] == "/snapshot")
            assert (channel["encoding"], channel["schemaEncoding"]) == ("json", "jsonschema")
            wish = {"id": 7, "channelId": channel["id"]}
            viewer.send(json.dumps({"op": "subscribe", "subscriptions": [wish]}))
            viewer.ping().wait(DEADLINE_S)
            data = b""
            for _ in range(100):  # what was sent before the wish was taken is not for this viewer
                rig.fly(0.1)
                with contextlib.suppress(TimeoutError):
                    data = viewer.recv(timeout=0.5, decode=False)
                    break
            opcode, subscription, time_ns = struct.unpack_from("<BIQ", data)
            assert (opcode, subscription) == (1, 7)
            one = json.loads(data[13:])
            assert time_ns == 1_700_000_000 * 10**9 + round(one["t_s"] * 1e9)
            assert one["actuators"] == {"left": 0.5, "right": -0.5}
        with pytest.raises(ConfigError, match=f"live view on port {view.port}"):
            LiveView(view.port)
    rig.recorder.finish()
    assert len(rig.cycles()) == rig.flight._number, "recorded as well"
