"""ZAP, the ZeroMQ Authentication Protocol (27/ZAP): ask a handler which peers to admit.

zap = Zap("ipc:///run/zap.sock", domain="shop")
broker = requite.Broker("tls://0.0.0.0:5555?…", access="access.toml", authenticate=zap)
"""

from __future__ import annotations

from requite.zap.hook import Zap

__all__ = ["Zap"]
